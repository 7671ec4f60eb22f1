"""The device mesh: named axes with their sizes, and what each axis cuts."""

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import split_list

Dimension = Literal["examples", "positions", "parameters", "stacked", "features", "layers"]


class Axis(NamedTuple):
    """The dimensions that a mesh axis cuts into parts, and how far apart its neighbours are.

    Attributes:
        cuts: What is cut: the batch by examples or by the positions of each, the parameters at rest, layers that are
            stacked side by side (experts), the model inside its layers (by features) or between them.
        order: The place of the axis in the ranks' order. The axis with the highest place varies fastest, so its neighbours
            share a machine. Axes are applied to a model in the order layers, features, then examples and parameters.
    """

    cuts: tuple[Dimension, ...]
    order: int


AXES = {
    "data": Axis(("examples",), 1),
    "shard": Axis(("examples", "parameters"), 3),
    "context": Axis(("positions",), 2),
    "expert": Axis(("examples", "stacked"), 4),
    "tensor": Axis(("features",), 5),
    "pipe": Axis(("layers",), 0),
}
SPLITS_MODEL: tuple[Dimension, ...] = ("layers", "features", "positions", "stacked")
"""The dimensions of a model that axes cut while it computes, in the order in which the axes are applied."""
HEADS, GATHER, RING = "heads", "gather", "ring"
"""The exchanges of attention layers along `context`: of heads for positions, or of keys and values."""


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
        for part in split_list(text, f"mesh '{text}'", "axis", "data=2,tensor=2"):
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
        """Returns the size of one axis; an axis that the mesh does not have has size 1."""
        for each, size in self.axes:  # a search asks a million times
            if each == name:
                return size
        return 1

    @classmethod
    def of_replicas(cls, count: int, shards: int = 1, split: Mapping[str, int] = MappingProxyType({})) -> "Mesh":
        """Returns a mesh of replicas, each of which may be sharded and split along other axes; axes of one device are left out.

        Args:
            count: The number of replicas, which take different examples and have the same parameters.
            shards: The number of shards of each, which take different examples as well.
            split: Further axes with their sizes.
        """
        sizes = {"data": count, "shard": shards, **split}
        return cls(tuple((name, size) for name, size in sizes.items() if size > 1) or (("data", 1),))

    def cutting(self, *cuts: Dimension) -> "Mesh":
        """Returns the mesh of the axes that cut any of these dimensions; a mesh of one device if there are none."""
        axes = tuple((name, size) for name, size in self.axes if {*cuts} & {*AXES[name].cuts})
        return Mesh(axes) if axes else Mesh.of_replicas(1)

    @property
    def data(self) -> int:
        """The number of replicas of each device's parameters, which take different examples."""
        return self.axis("data")

    @property
    def shard(self) -> int:
        """The number of devices over which parameters, gradients and optimizer state are sharded."""
        return self.axis("shard")

    @property
    def tensor(self) -> int:
        """The number of devices over which each layer is split."""
        return self.axis("tensor")

    @property
    def pipe(self) -> int:
        """The number of devices over which the model is split between its layers."""
        return self.axis("pipe")

    @functools.cached_property
    def replicas(self) -> int:
        """The number of parts of a batch by examples; the devices of each part hold one model in training together."""
        return self.parts("examples")

    def parts(self, cut: Dimension) -> int:
        """Returns the number of parts into which a dimension is cut, along all axes that cut it."""
        return math.prod(size for name, size in self.axes if cut in AXES[name].cuts)

    def part(self, rank: int, cut: Dimension) -> int:
        """Returns the number of the part of a dimension that a device has.

        Args:
            rank: The place of the device among all.
            cut: The dimension.
        """
        part = 0
        for name, size, stride in self._strides():
            part = part * size + rank // stride % size if cut in AXES[name].cuts else part
        return part

    def members(self, group: str, ranks: int, place: int) -> tuple[int, ...]:
        """Returns the places of the devices in the same group as a given one; all places if the group was not recorded.

        Args:
            group: An axis, or several as `group_along` names them, or "all".
            ranks: The size of the group.
            place: The place of the device.
        """
        members = [place]
        for name, size, stride in self._strides() if ranks < self.size else ():
            if name in group.split(","):
                members = [each + (n - each // stride % size) * stride for each in members for n in range(size)]
        return tuple(members) if len(members) > 1 else tuple(range(self.size))

    def stride(self, axis: str) -> int:
        """Returns how far apart two neighbours along an axis are in the ranks' order; the axis may have a single device."""
        return math.prod(size for name, size in self.axes if AXES[name].order > AXES[axis].order)

    def _strides(self) -> list[tuple[str, int, int]]:
        """Returns each axis in the order of the ranks, its size, and the distance between two neighbours along it."""
        stride, found = 1, list[tuple[str, int, int]]()
        for name, size in sorted(self.axes, key=lambda pair: -AXES[pair[0]].order):
            found.insert(0, (name, size, stride))
            stride *= size
        return found

    @functools.cached_property
    def batch_axes(self) -> tuple[str, ...]:
        """The axes of several devices along which the batch is cut, and gradients are therefore summed, in the ranks' order."""
        return self._several({"examples", "positions"})

    @functools.cached_property
    def replica_axes(self) -> tuple[str, ...]:
        """The batch axes along which every device has the same parameters, apart from experts."""
        cutting = self._several({"parameters", "features", "layers"})
        return tuple(name for name in self.batch_axes if name not in cutting)

    @functools.cached_property
    def expert_replica_axes(self) -> tuple[str, ...]:
        """The replica axes along which every device has the same experts as well."""
        return tuple(name for name in self.replica_axes if "stacked" not in AXES[name].cuts)

    @functools.cached_property
    def in_order(self) -> tuple[str, ...]:
        """The axes of several devices, in the order of the ranks."""
        return tuple(name for name, size, _ in self._strides() if size > 1)

    def _several(self, cuts: set[Dimension]) -> tuple[str, ...]:
        return tuple(name for name in self.in_order if cuts & {*AXES[name].cuts})

    def group_along(self, axes: Sequence[str]) -> tuple[str, int]:
        """Returns the name in a ledger of the group of devices along some axes, and their number."""
        size = math.prod(map(self.axis, axes))
        return self.only_axis if size == self.size else ",".join(axes), size

    @property
    def only_axis(self) -> str:
        """The axis along which all devices lie; "all" if they lie along several."""
        (axis, *others) = [name for name, size in self.axes if size > 1] or [self.axes[0][0]]
        return "all" if others else axis

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


@functools.lru_cache(maxsize=2**10)
def divisors(number: int) -> Sequence[int]:
    """Returns the divisors of a number, in ascending order."""
    small = [count for count in range(1, math.isqrt(number) + 1) if number % count == 0]
    return tuple(sorted({*small, *(number // count for count in small)}))
