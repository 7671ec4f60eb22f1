"""Families of strategies, which the textbooks rank among each other."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Family:
    """Rows that the textbooks rank among each other.

    Attributes:
        name: Of the family.
        differs: Quantity (a field of `Textbook`, or "peak") -> why what is measured may contradict the textbooks.
        page: Where that is explained.
    """

    name: str
    differs: Mapping[str, str]
    page: str


@dataclasses.dataclass(frozen=True)
class Textbook:
    """What the textbooks say of a row among the rows of its family: its places, of which 1 has the most.

    Attributes:
        family: The rows that are ranked among each other.
        speed: Its place by examples per second.
        memory: Its place by memory per device.
        sent: Its place by bytes on the wire; rows with one place send the same.
    """

    family: Family
    speed: int
    memory: int
    sent: int
