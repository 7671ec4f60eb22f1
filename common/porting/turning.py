"""Replaces the input of a torch module, where a step before its Keras counterpart is accepted."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

Step = tuple[str | float | int | tuple[int, ...], ...]
"""An operation on an array, and its arguments.

`times` a factor; `plus` a shift; `take` places along an axis; `swap` two axes; `heads` reads [batch, time, width] as if
that many heads came one after another along time, and `heads back` undoes that; `pool` goes over all axes between the
first and the last, by a key of `POOLS`.
"""


@dataclasses.dataclass(frozen=True)
class Turned:
    """A replacement for the input of a torch module.

    Attributes:
        axes: How the axes of torch's array are permuted before the steps, and back after them.
        steps: The operations on the array, in order.
        of: The module whose result replaces the input; "" if the input itself is used.
    """

    axes: tuple[int, ...]
    steps: tuple[Step, ...]
    of: str = ""

    def after(self, other: "Turned | None") -> "Turned":
        """Returns a replacement that takes the steps of `other` first, unless this one starts from another module's result."""
        if other is None or self.of:
            return self
        return dataclasses.replace(other, steps=(*other.steps, *self.steps))


POOLS: Mapping[str, Callable[..., np.ndarray]] = {
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(1),
    "first position": lambda x: x[:, 0],
    "last position": lambda x: x[:, -1],
    "maximum": lambda x: x.max(1),
}
"""The name of a pooling -> the function that pools [batch, positions, channels]."""


def pool(array: np.ndarray, how: str) -> np.ndarray:
    """Pools over all axes between the first and the last.

    Args:
        array: [batch, ..., channels].
        how: A key of `POOLS`.
    """
    return POOLS[how](array.reshape(len(array), -1, array.shape[-1]))
