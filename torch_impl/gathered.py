"""The most parameter bytes that `fully_shard` holds gathered at once within a step.

References:
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py of torch 2.13: the shards arrive in one flat buffer
    (`fsdp::all_gather_copy_in`), which is then copied out to the parameters (`fsdp::split_with_sizes_copy`).
"""

import sys
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef

from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.weights import nbytes

_OUR_REFERENCES = 3
"""The references to a buffer that are ours: the list's, the loop's over it, and the counting call's."""


class Gathered:
    """Follows the memory of gathered parameters, from one operator to the next."""

    def __init__(self, model: nn.Module) -> None:
        """Starts between two steps.

        Args:
            model: Its sharded parameters are looked at.
        """
        self.peak_bytes = 0
        self._sharded = [module for module in model.modules() if any(isinstance(p, DTensor) for p in _own(module))]
        self._at_rest = {id(parameter) for module in self._sharded for parameter in _own(module)}
        self._buffers: list[torch.Tensor] = []
        self._params: dict[StorageWeakRef, torch.UntypedStorage] = {}  # fully_shard frees what they point to, not them

    def before(self, name: str, filled: Iterable[torch.Tensor]) -> None:
        """Measures what is alive.

        Args:
            name: Of the operator that is about to run.
            filled: Its argument `out`.
        """
        if not self._sharded:
            return
        own = (p for module in self._sharded for p in _own(module))
        gathered = [local_part(p) for p in own if id(p) not in self._at_rest]
        if name == "fsdp::split_with_sizes_copy":
            gathered += filled
        for storage in (tensor.untyped_storage() for tensor in gathered):
            self._params[StorageWeakRef(storage)] = storage
        # By references to the tensor, which fully_shard has: a thread of gloo may keep the memory a moment longer.
        self._buffers = [buffer for buffer in self._buffers if sys.getrefcount(buffer) > _OUR_REFERENCES]
        alive = nbytes(self._buffers) + sum(storage.nbytes() for storage in self._params.values())
        self.peak_bytes = max(self.peak_bytes, alive)

    def after(self, name: str, result: object) -> None:
        """Notes a buffer that shards are about to arrive in.

        Args:
            name: Of the operator that has run.
            result: What it returned.
        """
        if name == "fsdp::all_gather_copy_in" and isinstance(result, list | tuple):
            self._buffers.append(result[1])


def _own(module: nn.Module) -> Iterable[nn.Parameter]:
    return module.parameters(recurse=False)
