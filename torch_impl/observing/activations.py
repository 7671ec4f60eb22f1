"""Counts activations: the bytes that autograd keeps between a forward pass and its backward pass.

References:
    torch.autograd.graph.saved_tensors_hooks (torch 2.13): `pack` is called once for every tensor that an operation saves.
    What it returns lives until the operation's backward pass has run.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef

from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.upstream import (
    outside_modes,
    registered_buffers,
    registered_parameters,
    saved_tensors_hooks_on_top,
)


class KeptActivations:
    """Counts the storages that autograd keeps, each once, even if several tensors are views of it.

    The batch counts if an operation saves it, because it then has to stay. Parameters and buffers never count, nor do views
    and gathered copies of them, which the footprint counts as parameters. What a pipeline keeps outside autograd, such as the
    buffers of its messages, does not count.

    Attributes:
        peak_bytes: The most bytes that were kept at once.
    """

    def __init__(self, model: nn.Module) -> None:
        """Starts between two steps.

        Args:
            model: The model whose parameters and buffers do not count. They are looked up whenever an operation saves something,
                because `fully_shard` replaces the parameters of a module by gathered ones while it computes.
        """
        self.peak_bytes = 0
        places = (registered_parameters, registered_buffers)
        self._held = [registered(module) for module in model.modules() for registered in places]
        self._bytes = 0
        self._holders: dict[StorageWeakRef, int] = {}
        self._saved_again: dict[StorageWeakRef, int] = {}
        self._known: set[StorageWeakRef] = set()  # a weak reference keeps another storage from getting the same address

    def pack(self, tensor: torch.Tensor) -> "_Kept":
        """Counts a tensor that an operation saves."""
        with outside_modes(), torch.no_grad():
            tensor = tensor.detach()  # the saved tensor must not refer to its operation
            storage = _local(tensor).untyped_storage()
            key = StorageWeakRef(storage)
            if key not in self._holders and self._is_parameter(key):
                return _Kept(tensor, lambda: None)
        if key not in self._holders:
            self._bytes += storage.nbytes()
            self.peak_bytes = max(self.peak_bytes, self._bytes)
        self._holders[key] = self._holders.get(key, 0) + 1
        return _Kept(tensor, lambda: self._release(key, storage.nbytes()))

    def save_again(self, tensor: torch.Tensor) -> None:
        """Counts a tensor that is saved again by a recomputation in the backward pass; checkpoint keeps it until it is used."""
        storage = _local(tensor).untyped_storage()
        key = StorageWeakRef(storage)
        if key not in self._holders and not self._is_parameter(key):
            self._saved_again[key] = storage.nbytes()
        self._saved_again = {key: size for key, size in self._saved_again.items() if not key.expired()}
        self.peak_bytes = max(self.peak_bytes, self._bytes + sum(self._saved_again.values()))

    def _is_parameter(self, key: StorageWeakRef) -> bool:
        if key not in self._known:
            held = [tensor for registered in self._held for tensor in registered.values() if tensor is not None]
            self._known |= {StorageWeakRef(_local(each).untyped_storage()) for each in held}
        return key in self._known

    def _release(self, key: StorageWeakRef, size: int) -> None:
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._holders[key]
            self._bytes -= size


class _Kept:
    """A saved tensor; autograd drops it once the backward pass has used it."""

    def __init__(self, tensor: torch.Tensor, release: Callable[[], None]) -> None:
        self.tensor = tensor
        self._release = release

    def __del__(self) -> None:
        self._release()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor of this process behind a DTensor or behind the result of a collective."""
    tensor = local_part(tensor) if isinstance(tensor, DTensor) else tensor
    return tensor.elem if isinstance(tensor, AsyncCollectiveTensor) else tensor


@contextlib.contextmanager
def follow_activations(model: nn.Module) -> Iterator[KeptActivations]:
    """Makes a context in which the tensors that autograd saves are counted, except those that the model holds."""
    kept = KeptActivations(model)
    _FOLLOWED.append(kept)
    try:
        with saved_tensors_hooks(kept.pack, lambda held: held.tensor):
            yield kept
    finally:
        _FOLLOWED.remove(kept)


_FOLLOWED: list[KeptActivations] = []
"""The counter in use, for `recomputing`, because a backward pass may run on another thread than the step."""


@contextlib.contextmanager
def recomputing() -> Iterator[None]:
    """Makes a context that counts what a recomputation saves; otherwise only checkpoint's own hooks would see it."""
    if not _FOLLOWED:
        yield
        return
    kept, (pack, unpack) = _FOLLOWED[-1], saved_tensors_hooks_on_top()

    def counted(tensor: torch.Tensor) -> object:
        with outside_modes(), torch.no_grad():
            kept.save_again(tensor)
        return pack(tensor)

    with saved_tensors_hooks(counted, unpack):
        yield
