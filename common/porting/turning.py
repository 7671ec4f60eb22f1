"""What a module of torch gets instead of what it was given, where what stands before its counterpart in Keras is accepted."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

Step = tuple[str | float | int | tuple[int, ...], ...]
"""What is done to an array, and its arguments.

`times` a factor; `plus` a shift; `take` places along an axis; `swap` two axes; `heads` reads [batch, time, width] as so many
heads that were put one after the other along time, `heads back` undoes that; `pool` goes over all axes between the first and
the last, by a key of `POOLS`.
"""


@dataclasses.dataclass(frozen=True)
class Turned:
    """What a module of torch gets instead of what it was given.

    Attributes:
        axes: How the axes of torch's array are permuted before the steps, and back after them.
        steps: What is done to it.
        of: The module whose result is taken in place of what the module was given; "" if that is not replaced.
    """

    axes: tuple[int, ...]
    steps: tuple[Step, ...]
    of: str = ""

    def after(self, other: "Turned | None") -> "Turned":
        """Returns what does another one's steps first; what is made of another module's result needs none of them."""
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
"""How [batch, positions, channels] is pooled."""


def pool(array: np.ndarray, how: str) -> np.ndarray:
    """Pools over all axes between the first and the last.

    Args:
        array: [batch, ..., channels].
        how: A key of `POOLS`.
    """
    return POOLS[how](array.reshape(len(array), -1, array.shape[-1]))
