"""Finds outputs and losses in what a user's model returns: a tensor, or a tuple, a mapping or an object that holds several.

The mirrors decide what a tensor is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from samestep.common.errors import ConfigError


class Shaped(Protocol):
    """A tensor of any framework."""

    @property
    def shape(self) -> Sequence[int]:
        """The shape of the tensor."""


Tensor = TypeVar("Tensor", bound=Shaped)
IsTensor = Callable[[object], bool]


def named_tensors(returned: object, is_tensor: IsTensor, name: str = "") -> Iterator[tuple[str, object]]:
    """Yields each tensor that a model returns, with its path in the returned value, such as "0" or "hidden_states.1".

    Args:
        returned: The value that the model returns.
        is_tensor: Returns whether an object is a tensor.
        name: The path of `returned`.
    """
    if is_tensor(returned):
        yield name, returned
    for key, value in () if is_tensor(returned) else _fields(returned):
        if is_tensor(value) or isinstance(value, Mapping | tuple | list):
            yield from named_tensors(value, is_tensor, f"{name}.{key}".lstrip("."))


def _fields(returned: object) -> Iterator[tuple[str, object]]:
    if isinstance(returned, Mapping):
        yield from ((str(key), value) for key, value in returned.items())
    elif isinstance(returned, tuple | list):
        names = getattr(returned, "_fields", range(len(returned)))  # those of a named tuple
        yield from zip(map(str, names), returned, strict=True)
    else:
        yield from getattr(returned, "__dict__", {}).items()


def logits_of(returned: object, is_tensor: IsTensor) -> object:
    """Returns the input of one of our losses: the tensor itself, or `logits`, if no loss next to them would be dropped.

    Args:
        returned: The value that the model returns.
        is_tensor: Returns whether an object is a tensor.

    Raises:
        ConfigError: There are no logits, or there is a loss next to them.
    """
    fields = {"logits": returned} if is_tensor(returned) else dict(_fields(returned))
    if not is_tensor(fields.get("logits")):
        held = ", ".join(name for name, _ in named_tensors(returned, is_tensor))
        raise ConfigError(
            f"the model returns {type(returned).__name__}{f' of {held}' if held else ''}; return a tensor, or a mapping or an "
            f"object with `logits`; or give loss={{'torch': function}}, where function(outputs, targets) is given all of it."
        )
    if lost := [f"`{name}`" for name, value in fields.items() if "loss" in name and value is not None]:
        raise ConfigError(
            f"the model returns {', '.join(lost)} next to its logits, which no strategy would train on; leave it out, or add it "
            f"up: by add_loss in Keras, by loss={{'torch': function}}, or in the model, with loss='returned'."
        )
    return fields["logits"]


def loss_of(returned: object, is_tensor: IsTensor) -> object:
    """Returns the loss that a model computes itself: the tensor named `loss`, or else the first single number.

    Args:
        returned: The value that the model returns.
        is_tensor: Returns whether an object is a tensor.

    Raises:
        ConfigError: There is no such number.
    """
    tensors = dict(named_tensors(returned, is_tensor))
    scalars = {name: each for name, each in tensors.items() if is_number(each)}
    if not scalars:
        raise ConfigError(
            f"the model returns {type(returned).__name__} without a loss of one number; with loss='returned' return it, as in "
            f"`return loss`, `return logits, loss` or an object with `loss`."
        )
    return scalars.get("loss", next(iter(scalars.values())))


def main_of(returned: object, is_tensor: IsTensor) -> object:
    """Returns the outputs that a metric gets: the tensor itself, `logits`, or else the first tensor that is not a single number.

    Args:
        returned: The value that the model returns.
        is_tensor: Returns whether an object is a tensor.

    Raises:
        ConfigError: There is no such tensor.
    """
    tensors = {name: each for name, each in named_tensors(returned, is_tensor) if not is_number(each)}
    if not tensors:
        raise ConfigError(
            f"the model returns {type(returned).__name__} without a tensor of outputs; if it computes its own loss, give "
            f"loss='returned'."
        )
    return tensors.get("logits", next(iter(tensors.values())))


def is_number(tensor: object) -> bool:
    """Returns whether a tensor is a single number."""
    return len(tensor.shape) == 0  # type: ignore[attr-defined]
