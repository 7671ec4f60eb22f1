"""One of several parts of what would run, as in `make test-slow PART=3/20`.

A part is a run of neighbours, so that tests of one file share what they make once.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Part:
    """The part `number`, from 1 on, of `total` parts that differ in size by at most one test."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Reads `3/20`.

        Raises:
            argparse.ArgumentTypeError: If that is no part.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise argparse.ArgumentTypeError(f"{text} is no part: give 1/20 to 20/20, or another number of parts")
        return cls(int(found[1]), int(found[2]))

    def of(self, items: Sequence[object]) -> slice:
        """Returns where the part lies among all tests that would run."""
        return slice(*(len(items) * end // self.total for end in (self.number - 1, self.number)))


class OnlyPart:
    """The plugin that leaves out all other parts, after marks and names have chosen."""

    def __init__(self, part: Part) -> None:
        self.part = part

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = self.part.of(items)
        config.hook.pytest_deselected(items=items[: chosen.start] + items[chosen.stop :])
        items[:] = items[chosen]
