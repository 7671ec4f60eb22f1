"""Changes the inputs of a module in a user model, if the user accepts a difference in what precedes the module."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from samestep.common.porting.turning import POOLS, Turned


def turn_module(module: nn.Module, path: str, turned: Turned) -> None:
    """Changes the first input of a module, or the output of the model.

    Args:
        module: The model.
        path: The path of the module; "" for the output of the model.
        turned: The change to make.
    """
    kept: list[torch.Tensor] = []

    def keep(_: nn.Module, given: object, returned: torch.Tensor) -> None:
        kept[:] = [returned]

    def before(_: nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return turn(kept[0] if kept else given[0], turned), *given[1:]

    def after(_: nn.Module, given: object, returned: torch.Tensor) -> torch.Tensor:
        return turn(kept[0] if kept else returned, turned)

    if turned.of:
        module.get_submodule(turned.of).register_forward_hook(keep)
    if path:
        module.get_submodule(path).register_forward_pre_hook(before, prepend=True)
    else:
        module.register_forward_hook(after)


def turn(tensor: torch.Tensor, turned: Turned) -> torch.Tensor:
    """Applies the steps of a change to a tensor.

    Args:
        tensor: The tensor to change.
        turned: The change to make.
    """
    tensor = tensor.permute(turned.axes)
    for name, *given in turned.steps:
        tensor = _STEPS[str(name)](tensor, *given)
    return tensor.permute(np.argsort(turned.axes).tolist()) if tensor.ndim == len(turned.axes) else tensor


def _split(x: torch.Tensor, parts: int) -> torch.Tensor:
    return x.unflatten(-1, (parts, -1)).transpose(1, 2).reshape(x.shape)


def _joined(x: torch.Tensor, parts: int) -> torch.Tensor:
    return x.reshape(len(x), parts, x.shape[1], -1).transpose(1, 2).reshape(x.shape)


_POOLS: Mapping[str, Callable[..., Any]] = {**POOLS, "maximum": lambda x: x.amax(1)}  # torch's max gives positions
_STEPS: Mapping[str, Callable[..., torch.Tensor]] = {
    "times": lambda x, factor: x * factor,
    "plus": lambda x, shift: x + shift,
    "take": lambda x, axis, places: x.index_select(axis, torch.tensor(places)),
    "swap": lambda x, one, other: x.transpose(one, other),
    "heads": _split,
    "heads back": _joined,
    "pool": lambda x, how: _POOLS[how](x.flatten(1, -2)),
}
