"""Converts between neutral arrays and DTensors on a mesh data x tensor."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from samestep.common.batch import WHOLE, Batch
from samestep.common.program import StatePiece
from samestep.common.strategy import Run
from samestep.common.workload.data.several import each
from samestep.tf_impl import weights
from samestep.tf_impl.models.inputs import Inputs, gathering


class Layouts:
    """The layouts of tensors on a mesh. Each shard is made on its own device, and no full tensor is sent."""

    def __init__(self, mesh: dtensor.Mesh, split: Mapping[str, int]) -> None:
        """Takes a mesh with the axes `data` and `tensor`.

        Args:
            mesh: The mesh of all devices of all processes.
            split: Parameter name -> the dim that is cut along `tensor`; the others are replicated.
        """
        self.mesh = mesh
        self.split = split
        self.coordinates: list[dict[str, int]] = mesh.local_device_locations()
        self.devices: list[str] = [str(device) for device in mesh.local_devices()]

    def of(self, name: str, rank: int) -> dtensor.Layout:
        """Returns the layout of a parameter, its gradient and its optimizer state.

        Args:
            name: The neutral name of the parameter.
            rank: The number of its dims.
        """
        specs = [dtensor.UNSHARDED] * rank
        if name in self.split:
            specs[self.split[name]] = "tensor"
        return dtensor.Layout(specs, self.mesh)

    def shard(self, value: np.ndarray, layout: dtensor.Layout) -> tf.Tensor:
        """Cuts a full array into the shards of this process's devices.

        Args:
            value: The full array.
            layout: The layout, which says how the array is cut.
        """
        return dtensor.pack([tf.constant(self._shard(value, layout, each)) for each in self.coordinates], layout)

    def _shard(self, value: np.ndarray, layout: dtensor.Layout, coordinates: Mapping[str, int]) -> np.ndarray:
        for dim, axis in enumerate(layout.sharding_specs):
            if axis != dtensor.UNSHARDED:
                value = np.split(value, self.mesh.dim_size(axis), axis=dim)[coordinates[axis]]
        return value

    def micro_batches(self, run: Run, batch: Batch, count: int) -> list[tuple[Inputs, Inputs]]:
        """Gathers the micro-batches, each of which has a part of every data shard.

        Args:
            run: What is trained.
            batch: The global batch.
            count: The number of micro-batches of each data shard.

        Returns:
            Inputs and targets of each, cut along the batch.
        """
        shards, gather = self.mesh.dim_size("data"), gathering(run)
        gathered = []
        for micro in range(count):
            parts = [gather(batch, WHOLE.split(shard, shards).split(micro, count)) for shard in range(shards)]
            inputs, targets = map(np.concatenate, zip(*parts, strict=True))
            gathered.append((each(inputs, self.batch), each(targets, self.batch)))
        return gathered

    def batch(self, array: np.ndarray) -> tf.Tensor:
        """Cuts a full array of examples along the batch."""
        return self.shard(array, self._batch(array.ndim))

    def _batch(self, rank: int) -> dtensor.Layout:
        return dtensor.Layout.batch_sharded(self.mesh, "data", rank)

    def along_batch(self, tensor: tf.Tensor) -> tf.Tensor:
        """Gathers a tensor along every dim but the batch."""
        return dtensor.relayout(tensor, self._batch(tensor.shape.rank))

    def replicate(self, tensor: tf.Tensor) -> tf.Tensor:
        """Copies a small tensor to every device."""
        return dtensor.copy_to_mesh(tensor, dtensor.Layout.replicated(self.mesh, tensor.shape.rank))

    def gather(self, tensor: tf.Tensor) -> np.ndarray:
        """Gathers a full array from all devices."""
        return dtensor.relayout(tensor, dtensor.Layout.replicated(self.mesh, tensor.shape.rank)).numpy()

    @property
    def is_whole(self) -> bool:
        """Whether the devices of this process, and therefore those of every other process, hold a copy of everything."""
        return len({each["tensor"] for each in self.coordinates}) == self.mesh.dim_size("tensor")

    @property
    def is_first(self) -> bool:
        """Whether the first device of the mesh belongs to this process."""
        return any(not any(each.values()) for each in self.coordinates)

    def pieces(self, path: str, tensor: tf.Tensor, layout: dtensor.Layout) -> Iterator[StatePiece]:
        """Yields the shards of this process's devices; of several copies, only the first on the mesh.

        Args:
            path: As in `StatePiece`.
            tensor: The tensor.
            layout: Its layout.
        """
        specs, shape = layout.sharding_specs, tuple(tensor.shape)
        for coordinates, shard in zip(self.coordinates, dtensor.unpack(tensor), strict=True):
            if not any(place for axis, place in coordinates.items() if axis not in specs):
                sizes = shard.shape.as_list()
                offset = tuple(coordinates.get(axis, 0) * size for axis, size in zip(specs, sizes, strict=True))
                yield StatePiece(path, offset, shape, shard.numpy())

    def local_bytes(self, tensors: Iterable[tf.Tensor]) -> list[int]:
        """Returns the bytes of the shards of tensors, together, on each of this process's devices."""
        return [weights.nbytes(shards) for shards in zip(*map(dtensor.unpack, tensors), strict=True)]

    def mean(self, value: float) -> float:
        """Computes the mean over all devices of a number that each process gives."""
        if len(self.devices) == self.mesh.size:
            return value
        axes = self.mesh.dim_names
        own = tf.constant(np.full([1] * len(axes), value))
        every = self.gather(dtensor.pack([own] * len(self.devices), dtensor.Layout(axes, self.mesh)))
        return float(every.mean())
