"""Converts what a user model returns to what its loss takes: the outputs, everything that it returns, or its own loss."""

import copy
import functools
from collections.abc import Collection, Mapping

import torch
from torch import nn
from torch.utils import _pytree as pytree

from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.models.dtypes import check_outputs
from samestep.common.workload.models.returned import logits_of, loss_of, main_of
from samestep.torch_impl.models.inputs import tensors


def is_tensor(value: object) -> bool:
    """Returns whether a value is a tensor."""
    return isinstance(value, torch.Tensor)


def finish_outputs(module: nn.Module, model: Model, unread: Collection[int] = ()) -> None:
    """Makes a model return what its loss takes.

    Args:
        module: The built model.
        model: The declaration.
        unread: The positions of the tensors that the model returns but its loss does not read. They are detached, because
            DDP would wait for their gradients.
    """
    module.register_forward_hook(functools.partial(_finish, model.loss, frozenset(unread)), with_kwargs=True)


def _finish(
    loss: object, unread: frozenset[int], module: nn.Module, args: object, named: object, outputs: object
) -> object:
    if isinstance(loss, Mapping):
        return _finish_all(unread, outputs)
    is_loss = loss == RETURNED
    found = _wide((loss_of if is_loss else logits_of)(outputs, is_tensor))
    assert isinstance(found, torch.Tensor)
    check_outputs("the model's loss" if is_loss else "the model", dtype_of(found))
    # It is repeated for each example, because every row splits and gathers by examples.
    return found.expand(_rows((args, named))) if is_loss else found


def _rows(inputs: object) -> int:
    return len(next(each for each in tensors(inputs) if each.ndim))


def _finish_all(unread: frozenset[int], outputs: object) -> object:
    _make_known(outputs)
    check_outputs("the model", dtype_of(main_outputs(outputs)))
    leaves, structure = pytree.tree_flatten(outputs)
    wide = [_wide(each.detach() if number in unread else _readable(each)) for number, each in enumerate(leaves)]
    return pytree.tree_unflatten(wide, structure)


def _readable(value: object) -> object:
    """Copies a parameter that a model returns itself, since sharding frees its numbers after the forward pass."""
    return value.clone() if isinstance(value, nn.Parameter) else value


def _make_known(outputs: object) -> None:
    """Makes torch find the tensors in an object whose class it does not know, such as a dataclass."""
    kind = type(outputs)
    if pytree.tree_is_leaf(outputs) and not is_tensor(outputs):
        names = tuple(vars(outputs))
        pytree.register_pytree_node(kind, lambda each: (list(vars(each).values()), (copy.copy(each), names)), _remade)


def _remade(values: object, context: tuple[object, tuple[str, ...]]) -> object:
    made = copy.copy(context[0])
    vars(made).update(zip(context[1], values, strict=True))  # type: ignore[call-overload]
    return made


def _wide(value: object) -> object:
    """Casts a tensor with a two-byte dtype to float32, because losses never have two bytes."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.float() if value.is_floating_point() and value.dtype.itemsize == 2 else value


def main_outputs(outputs: object) -> torch.Tensor:
    """Returns the outputs that a metric is given, from all that a model returns."""
    found = main_of(outputs, is_tensor)
    assert isinstance(found, torch.Tensor)
    return found


def dtype_of(tensor: torch.Tensor) -> str:
    """Returns the name of the dtype of a tensor, such as "float32"."""
    return str(tensor.dtype).removeprefix("torch.")
