"""Steps of Keras that are not looked at run a copy of their graph without the looks: nothing else changes."""

import json
from pathlib import Path

import pytest

from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import RecordedStep
from tests.recording.records import SCRIPTS, run_forked

pytestmark = [pytest.mark.tf, pytest.mark.timeout(400)]


def run(out: Path, case: str) -> tuple[bool, list[bool], list[RecordedStep]]:
    """Returns whether a recorded script did what the bare one did, which of its graphs have a copy, and its steps."""
    said = run_forked("keras", [(str(SCRIPTS / "keras_unseen.py"), [str(out), case], None, 1)])
    bare, recorded, copies = json.loads(said)
    with (out / "4" / "rank-0.steps").open("rb") as file:
        return bare == recorded, copies, list(read_rank(file, "a record")[1])


def test_a_copy_takes_the_same_steps_and_looks_at_none(tmp_path: Path) -> None:
    is_same, copies, steps = run(tmp_path, "fit")
    assert is_same
    assert True in copies
    assert [each.number for each in steps] == [-1, *range(40)]
    assert [each.number for each in steps if each.stats] == [-1, *range(10), *range(12, 40, 4)]
    assert all(each.losses and each.rows and each.scalars for each in steps[1:])
    assert len({each.losses for each in steps[1:]}) == 40
    assert [each.rows for each in steps[1:11]] * 4 == [each.rows for each in steps[1:]]


def test_a_graph_that_draws_random_numbers_has_no_copy_which_would_draw_others(tmp_path: Path) -> None:
    is_same, copies, _ = run(tmp_path, "noisy")
    assert is_same
    assert copies
    assert not any(copies)


def test_a_call_of_two_steps_has_no_copy_which_would_miss_the_look_at_the_second(tmp_path: Path) -> None:
    is_same, copies, steps = run(tmp_path, "of_two")
    assert is_same
    assert copies == [False]
    assert [each.number for each in steps if each.stats] == [-1, *range(10), *range(12, 76, 4)]
