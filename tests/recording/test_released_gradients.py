"""Large gradients of Keras are let go of before their update: the record is the same, and no condition keeps them."""

from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import RecordedStep
from tests.recording.records import SCRIPTS, run_forked

pytestmark = [pytest.mark.tf, pytest.mark.timeout(300)]


def recorded(out: Path, large: int) -> tuple[list[RecordedStep], int]:
    """Returns the steps of a script, and the most numbers that what looks at tensors after an update is given of one."""
    said = run_forked("keras", [(str(SCRIPTS / "keras_released.py"), [str(out), str(large)], None, 1)])
    with (out / "rank-0.steps").open("rb") as file:
        return list(read_rank(file, "a record")[1]), int(said)


def test_large_gradients_are_seen_before_the_update_and_recorded_as_after_it(tmp_path: Path) -> None:
    steps, most = recorded(tmp_path / "before", 2**16)
    others, most_kept = recorded(tmp_path / "after", 2**62)
    assert most < 300 * 300 == most_kept
    assert [each.number for each in steps if each.stats] == [-1, *range(10), 12]
    for step, other in zip(steps, others, strict=True):
        assert step.losses == other.losses and step.rows == other.rows
        assert (step.stats is None) == (other.stats is None)
        for phase, rows in (step.stats or {}).items():
            np.testing.assert_array_equal(rows, (other.stats or {})[phase], f"{step.number} {phase}")
