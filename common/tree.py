"""The order in which parts of a loss or a gradient are added up: pairs of neighbors, then pairs of pairs, and so on.

Addition rounds, so a sum depends on its order. If the parts are a power of two, and so are the devices, the parts of a device
are a subtree. Each device adds up its own, and the subtotals of all devices are then added up like parts.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Part = TypeVar("Part")


class Tree(Generic[Part]):
    """Adds up parts as they arrive, holding at most log2 of their number as subtotals."""

    def __init__(self, add: Callable[[Part, Part], Part]) -> None:
        self._add = add
        self._subtotals: list[Part] = []
        self._count = 0

    def push(self, part: Part) -> None:
        """Takes the next part, and adds up complete subtrees."""
        self._count += 1
        size = self._count
        while size % 2 == 0:
            part = self._add(self._subtotals.pop(), part)
            size //= 2
        self._subtotals.append(part)

    def pop(self) -> Part:
        """Returns the sum of all parts, and resets; if their number is not a power of two, the last ones are added first."""
        subtotals, self._subtotals, self._count = self._subtotals, [], 0
        return functools.reduce(lambda total, part: self._add(part, total), reversed(subtotals))


def add_up(parts: Iterable[Part], add: Callable[[Part, Part], Part]) -> Part:
    """Adds up some parts, at least one, in the order of the tree.

    Args:
        parts: The parts, in order.
        add: Adds two of them.
    """
    first, *others = parts
    if not others:  # as in most steps
        return first
    tree = Tree(add)
    for part in (first, *others):
        tree.push(part)
    return tree.pop()
