"""Observing a step as torch dispatches it: the collectives, and the most parameter bytes gathered at once.

References:
    torch.utils._python_dispatch.TorchDispatchMode; torch 2.13 dispatches DDP's own all-reduces through it as well.
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py of torch 2.13: the shards arrive in one flat buffer
    (`fsdp::all_gather_copy_in`), which is then copied out to the parameters (`fsdp::split_with_sizes_copy`).
"""

import collections
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from samestep.common.ledger import Exchange
from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.weights import nbytes

_OUR_REFERENCES = 3
"""The references to a buffer that are ours: the list's, the loop's over it, and the counting call's."""
# Operator -> its name in the ledger, and which argument holds what this process hands over.
_COLLECTIVES = {
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::_allgather_base_": ("all_gather", 1),
    "c10d::allgather_": ("all_gather", 1),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::reduce_scatter_": ("reduce_scatter", 1),
    "c10d::send": ("send", 0),
    "_c10d_functional::all_reduce": ("all_reduce", 0),
    "_c10d_functional::all_reduce_": ("all_reduce", 0),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", 0),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0),
}


class ExchangeCounts:
    """Messages and bytes by name of the exchange."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()
        self._bytes: collections.Counter[str] = collections.Counter()

    def add(self, name: str, messages: Sequence[Sequence[torch.Tensor]]) -> None:
        """Counts messages.

        Args:
            name: The name of the exchange.
            messages: The tensors of each message.
        """
        self._counts[name] += len(messages)
        self._bytes[name] += sum(tensor.nbytes for message in messages for tensor in message)

    def take_exchanges(self) -> tuple[Exchange, ...]:
        """Returns what was added since the last call, and starts anew."""
        taken = tuple(Exchange(name, count, self._bytes[name]) for name, count in self._counts.items() if count)
        self._counts.clear()
        self._bytes.clear()
        return taken


class Gathered:
    """Follows the memory of the parameters that `fully_shard` gathers, from one operator to the next."""

    def __init__(self, model: nn.Module) -> None:
        """Starts between two steps.

        Args:
            model: The model whose sharded parameters are followed.
        """
        self.peak_bytes = 0
        self._sharded = [module for module in model.modules() if any(isinstance(p, DTensor) for p in _own(module))]
        self._at_rest = {id(parameter) for module in self._sharded for parameter in _own(module)}
        self._buffers: list[torch.Tensor] = []
        self._params: dict[StorageWeakRef, torch.UntypedStorage] = {}  # fully_shard frees what they point to, not them

    def before(self, name: str, filled: Iterable[torch.Tensor]) -> None:
        """Measures what is alive.

        Args:
            name: The name of the operator that is about to run.
            filled: The operator's argument `out`.
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
            name: The name of the operator that has run.
            result: What it returned.
        """
        if name == "fsdp::all_gather_copy_in" and isinstance(result, list | tuple):
            self._buffers.append(result[1])


def _own(module: nn.Module) -> Iterable[nn.Parameter]:
    return module.parameters(recurse=False)


class CountExchanges(TorchDispatchMode):
    """Counts the collectives dispatched within it, and follows the memory of gathered parameters."""

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()
        self._counts = ExchangeCounts()
        self.gathered = Gathered(model or nn.Module())

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Sees every operator that torch dispatches."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor then dispatches what it consists of, and its collectives arrive here
        name = func._schema.name
        if name in _COLLECTIVES:
            kind, handed_over = _COLLECTIVES[name]
            self._counts.add(kind, [torch.utils._pytree.tree_leaves(args[handed_over])])
        self.gathered.before(name, (kwargs or {}).get("out", ()))
        result = func(*args, **(kwargs or {}))
        self.gathered.after(name, result)
        return result

    def exchanges(self) -> tuple[Exchange, ...]:
        """What was counted, sorted by name."""
        return tuple(sorted(self._counts.take_exchanges(), key=lambda exchange: exchange.name))
