"""Neutral arrays <-> DTensors on a mesh of data x tensor."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from common.batch import Batch


class Layouts:
    """Where each tensor's parts are. Every part is made on its own device; no whole tensor is sent anywhere."""

    def __init__(self, mesh: dtensor.Mesh, split: Mapping[str, int]) -> None:
        """Takes a mesh with the axes `data` and `tensor`.

        Args:
            mesh: Of all devices of all processes.
            split: Parameter name -> the dimension that is cut along `tensor`; the others are whole everywhere.
        """
        self.mesh = mesh
        self.split = split
        self.places: list[dict[str, int]] = mesh.local_device_locations()
        self.devices: list[str] = [str(device) for device in mesh.local_devices()]

    def of(self, name: str, rank: int) -> dtensor.Layout:
        """The layout of a parameter, its gradient and its slots."""
        specs = [dtensor.UNSHARDED] * rank
        if name in self.split:
            specs[self.split[name]] = "tensor"
        return dtensor.Layout(specs, self.mesh)

    def place(self, value: np.ndarray, layout: dtensor.Layout) -> tf.Tensor:
        """Cuts a whole array into the parts of this process's devices."""
        return dtensor.pack([tf.constant(self._part(value, layout, place)) for place in self.places], layout)

    def _part(self, value: np.ndarray, layout: dtensor.Layout, place: Mapping[str, int]) -> np.ndarray:
        for dim, axis in enumerate(layout.sharding_specs):
            if axis != dtensor.UNSHARDED:
                value = np.split(value, self.mesh.dim_size(axis), axis=dim)[place[axis]]
        return value

    def micro_batch(self, batch: Batch, micro: int, count: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Micro-batch `micro` of `count` of every data shard, as inputs and targets cut along the batch."""
        shards = self.mesh.dim_size("data")
        parts = [batch.rows(place["data"] * count + micro, shards * count) for place in self.places]
        packed = [
            dtensor.pack([tf.constant(a) for a in arrays], self._batch(arrays[0].ndim))
            for arrays in zip(*parts, strict=True)
        ]
        return packed[0], packed[1]

    def batch(self, array: np.ndarray) -> tf.Tensor:
        """A whole array of examples, cut along the batch."""
        return self.place(array, self._batch(array.ndim))

    def _batch(self, rank: int) -> dtensor.Layout:
        return dtensor.Layout.batch_sharded(self.mesh, "data", rank)

    def along_batch(self, tensor: tf.Tensor) -> tf.Tensor:
        """Gathers whatever is cut, except along the batch."""
        return dtensor.relayout(tensor, self._batch(tensor.shape.rank))

    def whole(self, tensor: tf.Tensor) -> tf.Tensor:
        """The same small tensor on every device."""
        return dtensor.copy_to_mesh(tensor, dtensor.Layout.replicated(self.mesh, tensor.shape.rank))

    def gathered(self, tensor: tf.Tensor) -> np.ndarray:
        """A whole array, gathered from all devices."""
        return dtensor.relayout(tensor, dtensor.Layout.replicated(self.mesh, tensor.shape.rank)).numpy()

    def local_bytes(self, tensor: tf.Tensor) -> list[int]:
        """The bytes of the part of each of this process's devices."""
        return [part.shape.num_elements() * part.dtype.size for part in dtensor.unpack(tensor)]
