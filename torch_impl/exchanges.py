"""Counting the collectives of a step as torch dispatches them: how often, and how many bytes are handed over.

References:
    torch.utils._python_dispatch.TorchDispatchMode; torch 2.13 dispatches DDP's own all-reduces through it as well.
"""

import collections
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from samestep.common.ledger import Exchange
from samestep.torch_impl.gathered import Gathered

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
            name: Of the exchange.
            messages: Each of some tensors.
        """
        self._counts[name] += len(messages)
        self._bytes[name] += sum(tensor.nbytes for message in messages for tensor in message)

    def take_exchanges(self) -> tuple[Exchange, ...]:
        """Returns what was added since the last call, and starts anew."""
        taken = tuple(Exchange(name, count, self._bytes[name]) for name, count in self._counts.items() if count)
        self._counts.clear()
        self._bytes.clear()
        return taken


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
