"""Pages of `samestep explore`, and what is embedded in them."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from samestep.experiments import explore
from samestep.experiments.exploring import grid


@contextlib.contextmanager
def few_points() -> Iterator[None]:
    """A page can be set to the fewest points that a test needs: it is written four times as fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "FACTORS", (1,))
        yield


def write(folder: Path, *named: str) -> Path:
    """Writes a page on which nothing is measured, with the model's own width alone."""
    path = folder / "explore.html"
    with few_points():
        assert explore.main([*named, "--predicted", "--out", str(path)]) == 0
    return path


def embedded(path: Path) -> Mapping[str, object]:
    """What the script of a page reads."""
    (found,) = re.findall(r'<script type="application/json" id="steps">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(found)


def exchanged(moves: Sequence[Sequence[object]]) -> list[list[object]]:
    """Of each exchange its phase, operation, axis, links and bytes."""
    return [[*move[:4], move[8]] for move in moves]
