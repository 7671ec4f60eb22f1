"""Observes a step as torch dispatches it: what is sent, in order, and the most parameter bytes gathered at once.

References:
    torch.utils._python_dispatch.TorchDispatchMode; torch 2.13 dispatches DDP's own all-reduces through it as well.
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py of torch 2.13: the shards arrive in one flat buffer
    (`fsdp::all_gather_copy_in`), which is then copied to the parameters (`fsdp::split_with_sizes_copy`).
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from samestep.torch_impl.observing.collectives import Signature, collective_of
from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.upstream import is_in_backward, process_group, registered_parameters
from samestep.torch_impl.weights import nbytes

_OUR_REFERENCES = 3
"""The number of our own references to a buffer: from the list, from the loop over it, and from the counting call."""


class Gathered:
    """Follows the memory of the parameters that `fully_shard` gathers, from one operator to the next."""

    def __init__(self, model: nn.Module) -> None:
        """Starts between two steps.

        Args:
            model: The model whose sharded parameters are followed.
        """
        self.peak_bytes = 0
        sharded = [
            module for module in model.modules() if any(isinstance(p, DTensor) for p in module.parameters(False))
        ]
        self._sharded = [registered_parameters(module) for module in sharded]
        self._at_rest = {id(parameter) for registered in self._sharded for parameter in registered.values()}
        self._ids: list[int] = []
        self._buffers: list[torch.Tensor] = []
        self._params: dict[StorageWeakRef, torch.UntypedStorage] = {}  # fully_shard frees only their memory

    def before(self, name: str, filled: Iterable[torch.Tensor]) -> None:
        """Measures the gathered memory that is alive before an operator runs.

        Args:
            name: The name of the operator that is about to run.
            filled: The operator's argument `out`.
        """
        if not self._sharded:
            return
        present = [p for registered in self._sharded for p in registered.values()]
        gathered: list[torch.Tensor] = []
        if (ids := [id(p) for p in present]) != self._ids:  # it rarely changes from one operator to the next
            self._ids, apart = ids, [p for p in present if id(p) not in self._at_rest]
            # A wider copy that takes the place of a parameter during a call is an activation, so it is not counted here.
            gathered += [local_part(p) for p in apart if isinstance(p, nn.Parameter)]
        if name == "fsdp::split_with_sizes_copy":
            gathered += filled
        for storage in (tensor.untyped_storage() for tensor in gathered):
            self._params[StorageWeakRef(storage)] = storage
        # fully_shard's reference decides, because a thread of gloo may keep the memory a moment longer.
        self._buffers = [buffer for buffer in self._buffers if sys.getrefcount(buffer) > _OUR_REFERENCES]
        alive = nbytes(self._buffers) + sum(storage.nbytes() for storage in self._params.values())
        self.peak_bytes = max(self.peak_bytes, alive)

    def after(self, name: str, result: object) -> None:
        """Remembers a buffer in which shards are about to arrive.

        Args:
            name: The name of the operator that has run.
            result: What it returned.
        """
        if name == "fsdp::all_gather_copy_in" and isinstance(result, list | tuple):
            self._buffers.append(result[1])


class Observer(TorchDispatchMode):
    """The context of an observed step: records the collectives dispatched within it, and follows gathered parameters."""

    def __init__(self, recorder: SendRecorder, model: nn.Module | None = None) -> None:
        super().__init__()
        self.gathered = Gathered(model or nn.Module())
        self._recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Handles every operator that torch dispatches."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor then dispatches the operators on its parts, and its collectives arrive here
        name = func._schema.name
        if is_in_backward():
            self._recorder.phase = "backward"
        if collective := collective_of(func):
            _record(self._recorder, collective, args)
        self.gathered.before(name, (kwargs or {}).get("out", ()))
        result = func(*args, **(kwargs or {}))
        self.gathered.after(name, result)
        return result


def _record(recorder: SendRecorder, collective: Signature, args: tuple[Any, ...]) -> None:
    group, operation = process_group(args[collective.group]), collective.operation
    peer = "" if collective.peer is None else str(dist.get_global_rank(group, args[collective.peer]))
    to, source = (peer, "") if operation == "send" else ("", peer)
    tensors = torch.utils._pytree.tree_leaves(args[collective.handed_over])
    recorder.add(operation, tensors, _axis_of(group, recorder.whole), group.size(), to, source=source)


def _axis_of(group: dist.ProcessGroup, whole: str) -> str:
    """Returns the mesh axis after which a device mesh named a group; `whole` for the group of all ranks."""
    axis = group.group_desc.removeprefix(AXIS_PREFIX)
    return whole if group.size() == dist.get_world_size() or axis == group.group_desc else axis


AXIS_PREFIX = "mesh_"
"""The prefix that a device mesh puts before the name of an axis in the description of its group (torch 2.13)."""
