"""Counts how often the forward pass of a user model rounds a number to two bytes, for the bound of its verdict."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from samestep.common.workload.models.dtypes import Dtypes
from samestep.common.workload.models.findings import TwoBytes
from samestep.torch_impl.models.inputs import Inputs, tensors
from samestep.torch_impl.techniques.applied import can_keep, narrowly, see_kept
from samestep.torch_impl.upstream import without_numbers


def find_roundings(module: nn.Module, inputs: Inputs) -> TwoBytes:
    """Runs some examples through the model under autocast, and counts the roundings.

    Args:
        module: The model, which is in float32 afterwards.
        inputs: The examples.
    """
    return _count(module.float(), inputs, [_without_numbers, narrowly], "torch.autocast fails in its forward pass")


def find_kept_roundings(module: nn.Module, inputs: Inputs, dtypes: Dtypes) -> TwoBytes:
    """Runs some examples through the model with its parameters in the dtypes of the file, and counts the roundings.

    Args:
        module: The model, whose modules have different classes afterwards.
        inputs: The examples.
        dtypes: The dtypes of the file; see `Findings`.
    """
    if not can_keep(dtypes):
        return TwoBytes()
    see_kept(module.float(), dtypes)
    # It computes with numbers, because without them torch does not check dtypes.
    return _count(module, inputs, [torch.no_grad], "its forward pass fails with them")


def _count(
    module: nn.Module, inputs: Inputs, ways: Iterable[Callable[[], AbstractContextManager[object]]], fails: str
) -> TwoBytes:
    """Counts the roundings of a forward pass in evaluation, in the first of several contexts in which it does not fail."""
    module.eval()
    refused = ""
    given = {name: _single(array) for name, array in inputs.items()} if isinstance(inputs, Mapping) else _single(inputs)
    for way in ways:
        try:
            with warnings.catch_warnings(action="ignore"), _in_steps(), way(), Roundings() as seen:
                return TwoBytes(roundings=max(map(seen.behind, tensors(module(given)))))
        except Exception as error:
            refused = f"{fails} ({type(error).__name__}: {error})"
    return TwoBytes(refused=refused)


@contextlib.contextmanager
def _without_numbers() -> Iterator[None]:
    """Makes a context that computes only dtypes and shapes, a second for a large model; reading numbers in it fails."""
    with narrowly(), without_numbers():
        yield


@contextlib.contextmanager
def _in_steps() -> Iterator[None]:
    """Makes a context in which a transformer layer computes each product as in training, not as a single operation."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


def _single(array: torch.Tensor) -> torch.Tensor:
    return array.float() if array.is_floating_point() else array


class Roundings(TorchDispatchMode):
    """A context that counts the roundings behind every tensor that is computed within it.

    A result in two bytes that is not a view has one rounding more than its most rounded operand. A product has two more,
    because its other factor was rounded as well.
    """

    def __init__(self) -> None:
        """Starts with no roundings counted."""
        super().__init__()
        self._behind: dict[StorageWeakRef, int] = {}

    def behind(self, tensor: torch.Tensor) -> int:
        """Returns how often the numbers of a tensor were rounded at most; tensors that share a storage share the count."""
        return self._behind.get(_storage(tensor), 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        operands = tensors((args, kwargs))
        most = max(map(self.behind, operands), default=0)
        shared = {_storage(each) for each in operands if not function._schema.is_mutable}
        own = 2 if function.overloadpacket in flop_registry else 1
        for result in tensors(results):
            is_rounded = result.dtype == torch.bfloat16 and _storage(result) not in shared
            self._behind[_storage(result)] = max(most + own * is_rounded, self.behind(result))
        return results


def _storage(tensor: torch.Tensor) -> StorageWeakRef:
    """Returns a reference to the storage of a tensor; while it exists, no other storage gets the same address."""
    return StorageWeakRef(tensor.untyped_storage())
