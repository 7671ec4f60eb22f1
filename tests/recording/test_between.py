"""What happens between two steps of a PyTorch script: passes through its data begin and end, and weights are written."""

from pathlib import Path

import pytest

from samestep.experiments.recording.facts import facts_of
from tests.recording.records import read, recorded_once

pytestmark = pytest.mark.torch
LOADERS = {"": 4, "ahead": 4, "left": 2, "kept": 4, "checked": 4}
"""A way to use a DataLoader, and the first step after its pass."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [f"loaders {word}".strip() for word in LOADERS]
    return recorded_once(tmp_path_factory, "records-between", {line: (f"between.py {line}", {}) for line in lines})


@pytest.mark.parametrize(("word", "after"), LOADERS.items())
def test_a_pass_through_a_loader_is_over_before_steps_on_other_data(folder: Path, word: str, after: int) -> None:
    ((_, steps),) = read(record := folder / f"loaders {word}".strip())
    assert [each.number for each in steps if each.counts.get("passes_over")] == [after]
    begun = [each.number for each in steps if each.counts.get("data_passes")]
    assert begun == ([0, 2] if word == "checked" else [0])
    assert not [line for line in facts_of(record) if "DataLoader" in line]
