"""Makes layers that cast to float32 keep float64 inputs in float64, because proving a step needs all digits of every layer.

The norms of many published models compute in float32 for any input. Their gradients then have only seven digits, and the
gradients of two halves of a batch do not add up to those of the batch. For other dtypes, such layers are left unchanged.
"""

import functools
from collections.abc import Callable, Collection

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from samestep.torch_impl.models.followed_modules import following
from samestep.torch_impl.models.inputs import Inputs, tensors

_BITS = (torch.Tensor.view, torch.Tensor.view_as)
"""Functions that reinterpret bits as other numbers."""


class _Uncast(TorchFunctionMode):
    """A mode in which functions of torch that are asked for float32 produce float64."""

    def __init__(self, found: Callable[[], None] = lambda: None) -> None:
        """Stores the callback.

        Args:
            found: Called for each such function.
        """
        super().__init__()
        self._found = found

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = kwargs or {}
        if function is torch.Tensor.float:
            self._found()
            return args[0].double()
        if function not in _BITS and any(each is torch.float32 for each in (*args, *named.values())):
            self._found()
            args = tuple(map(_wide, args))
            named = {name: _wide(each) for name, each in named.items()}
        return function(*args, **named)


def _wide(value: object) -> object:
    return torch.float64 if value is torch.float32 else value


def find_casts(module: nn.Module, inputs: Inputs) -> tuple[str, ...]:
    """Returns the innermost modules in which a forward pass in float64 casts to float32, in order.

    Args:
        module: The model, in float64. If the pass fails, the result is empty; the next call of the model will raise.
        inputs: Some examples.
    """
    found: dict[str, None] = {}
    inside = [""]
    followed = following(module.named_modules(), lambda path, *_: inside.append(path), lambda *_: inside.pop())
    try:
        with followed, torch.no_grad(), _Uncast(lambda: found.setdefault(inside[-1])):
            module.eval()(inputs)
    except Exception:  # raised by the user's code
        return ()
    return tuple(found)


def keep_float64(module: nn.Module, paths: Collection[str]) -> None:
    """Makes some modules keep float64 inputs in float64, in place.

    Args:
        module: The model.
        paths: The paths of the modules; "" for the model itself.
    """
    for path in paths:
        each = module.get_submodule(path)
        each.__class__ = _keeping(type(each))


@functools.cache
def _keeping(kind: type[nn.Module]) -> type[nn.Module]:
    """Returns a class of the same name whose forward pass keeps float64."""

    @functools.wraps(kind.forward)
    def forward(self, *args, **named):
        if not any(each.dtype == torch.float64 for each in tensors((args, named))):
            return kind.forward(self, *args, **named)
        with _Uncast():
            return kind.forward(self, *args, **named)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
