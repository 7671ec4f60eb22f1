"""How a step of a transformer is spread over GPUs, and which GPUs share which of its parameters."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

from samestep.common.mesh import Mesh

_FIELDS = ("data", "shard", "tensor", "pipe")
"""The axes of the papers whose formulas these are."""
_NONE = Mesh.of_replicas(1)


@functools.lru_cache(maxsize=2**12)
def _stride(beside: Mesh, *sizes: int, axis: str) -> int:
    split = {**dict(beside.axes), **dict(zip(_FIELDS, sizes, strict=True))}
    return Mesh.of_replicas(1, split=split).stride(axis)


class SumGroup(NamedTuple):
    """GPUs that have the same parameters, or shards of them.

    Attributes:
        shards: The number of GPUs with different shards.
        shard_stride: How far apart two of these are.
        replicas: The number of GPUs with the same shard, or the whole.
        replica_stride: How far apart two of these are.
    """

    shards: int
    shard_stride: int
    replicas: int
    replica_stride: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How a step is spread over GPUs.

    Neighbours along `tensor` are neighbours in a node, then those along `expert`, `shard`, `context`, `data` and `pipe`.

    Attributes:
        batch_size: The number of sequences of a step, over all GPUs.
        microbatch_size: The number of sequences of a pass of one replica.
        data: The number of replicas, or of shards if `sharding` is set.
        shard: The number of shards of each replica, all of whose state is sharded (`sharding` 3).
        tensor: The number of GPUs that share each matrix.
        pipe: The number of GPUs that share the layers.
        beside: Further axes; the file of each in `common/axes/` says what is exchanged along it.
        schedule: The schedule of the pipeline, a key of `SCHEDULES`.
        sharding: What is sharded along `data`: 0 nothing, 1 the optimizer's state, 2 also gradients, 3 also parameters
            (FSDP); the stages of ZeRO. With `shard`: 2 if gathered parameters stay for the whole step.
        forward_passes: How often a block's forward pass is computed: 2 if it is recomputed in the backward pass, 1.5 if half of
            it is.
        overlaps: Whether gradients and parameters are exchanged while other layers compute, as DDP and FSDP do.
        fused_attention: Whether the scores of the attention stay on the chip.
        separate_kernels: Whether each norm and each residual sum is a separate kernel, as in PyTorch without a compiler.
        splits_sequence: Whether norms and residuals are split along `tensor` as well.
        shards_along_expert: Whether `shard` also shards everything but the experts along `expert`; otherwise GPUs along it hold
            the same.
    """

    batch_size: int
    microbatch_size: int
    data: int = 1
    shard: int = 1
    tensor: int = 1
    pipe: int = 1
    beside: Mesh = _NONE
    schedule: str = "1f1b"
    sharding: int = 0
    forward_passes: float = 1
    overlaps: bool = False
    fused_attention: bool = False
    separate_kernels: bool = False
    splits_sequence: bool = False
    shards_along_expert: bool = False

    @staticmethod
    def sizes_along(mesh: Mesh) -> Mapping[str, int]:
        """Returns the sizes of the axes of a mesh that are fields; the shards of a single replica lie along `data`."""
        sizes = {name: mesh.axis(name) for name in _FIELDS}
        return sizes if mesh.replica_axes else {**sizes, "data": mesh.shard, "shard": 1}

    @staticmethod
    @functools.lru_cache(maxsize=2**10)  # a search asks for each of many micro-batches
    def beside_of(mesh: Mesh) -> Mesh:
        """Returns the mesh of the other axes."""
        return Mesh.of_replicas(1, split={name: size for name, size in mesh.axes if name not in _FIELDS})

    def stride(self, axis: str) -> int:
        """Returns how far apart two neighbours along an axis are."""
        return _stride(self.beside, *(getattr(self, name) for name in _FIELDS), axis=axis)

    @property
    def num_gpus(self) -> int:
        """The number of all GPUs."""
        return self.data * self.shard * self.beside.size * self.tensor * self.pipe

    @property
    def microbatches(self) -> int:
        """The micro-batches of each replica in a step."""
        return self.batch_size // (self.data * self.shard * self.beside.replicas * self.microbatch_size)

    @property
    def shards_replicas(self) -> bool:
        """Whether state is sharded among the GPUs that would be replicas; otherwise `shard` has the shards."""
        return self.sharding > 0 and self.shard == 1

    @property
    def group(self) -> SumGroup:
        """The group that shares all parameters but those of experts: GPUs along `expert` have the same ones, or other shards."""
        replicas, owners, tensor = self._replicas, self.beside.parts("stacked"), self.tensor
        if self.shard == 1:
            return SumGroup(1, tensor, replicas * owners, tensor)
        if self.shards_along_expert:
            return SumGroup(self.shard * owners, tensor, replicas, tensor * owners * self.shard)
        # Replicas along `expert` are near, others far: as many groups meet in a node as if all replicas were far apart.
        apart = tensor * (self.shard if replicas > 1 else 1)
        return SumGroup(self.shard, tensor * owners, replicas * owners, apart)

    @property
    def expert_group(self) -> SumGroup:
        """The group that shares the parameters of the experts of a GPU."""
        stride = self.tensor * self.beside.parts("stacked")
        return SumGroup(self.shard, stride, self._replicas, stride * self.shard)

    @property
    def _replicas(self) -> int:
        """The number of GPUs that hold the same of all parameters, including the same experts."""
        return self.data * math.prod(map(self.beside.axis, self.beside.expert_replica_axes))
