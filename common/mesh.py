"""The device mesh: named axes with their sizes."""

import dataclasses
import math
import re

from samestep.common.errors import ConfigError, unknown

AXES = ("data", "shard", "tensor", "pipe")


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Named axis sizes, in the order given: `data=2,tensor=2` is four devices.

    Attributes:
        axes: Pairs of axis name (one of `AXES`) and size (1 or more).
    """

    axes: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, text: str) -> "Mesh":
        """Reads `data=2,tensor=2`.

        Raises:
            ConfigError: An axis is unknown or named twice, or a size is not a positive integer.
        """
        axes = []
        for part in text.split(","):
            name, _, size = (piece.strip() for piece in part.partition("="))
            if name not in AXES:
                raise unknown("mesh axis", name, AXES)
            if not re.fullmatch(r"[1-9][0-9]{0,8}", size):
                raise ConfigError(
                    f"mesh axis '{name}' has size '{size}'; give a positive integer, as in data=2,tensor=2."
                )
            if name in dict(axes):
                raise ConfigError(f"mesh '{text}' names the axis '{name}' twice; give each axis once.")
            axes.append((name, int(size)))
        return cls(tuple(axes))

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    def axis(self, name: str) -> int:
        """The size of one axis; an axis that is not there has size 1."""
        return dict(self.axes).get(name, 1)

    def members(self, group: str, ranks: int, place: int) -> tuple[int, ...]:
        """The places of the devices that share a group with one of them; all, where that was not recorded.

        Args:
            group: An axis, or "all". The last axis varies fastest.
            ranks: How many they are.
            place: Of one of them.
        """
        step = 1
        for name, size in reversed(self.axes) if ranks < self.size else ():
            if name == group:
                first = place - place // step % size * step
                return tuple(range(first, first + size * step, step))
            step *= size
        return tuple(range(self.size))

    @property
    def only_axis(self) -> str:
        """The axis along which all devices lie; "all" if they lie along several."""
        (axis, *others) = [name for name, size in self.axes if size > 1] or [self.axes[0][0]]
        return "all" if others else axis

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)
