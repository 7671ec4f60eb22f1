"""How long the rest of a comparison will take."""

import pytest

from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.experiments.printing import progress
from samestep.experiments.printing.progress import Timetable, spell_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds; a test moves it on."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_is_what_the_runs_of_each_cell_took(clock: list[float]) -> None:
    timetable = Timetable(["a", "b", "c"] * 2, {})
    assert timetable.left_seconds() is timetable.left_seconds(0.05) is None
    clock[0] += 3
    assert timetable.left_seconds(0.5) == pytest.approx(3 + 5 * 6), "as long as its own first part says"
    clock[0] += 1
    timetable.finish(4.0)
    assert timetable.left_seconds() == 5 * 4
    clock[0] += 1
    assert timetable.left_seconds() == 3 + 4 * 4
    timetable.finish(10.0)
    timetable.finish(1.0)
    assert timetable.left_seconds() == 4 + 10 + 1
    assert timetable.describe() == "3 of 6 runs, about 15 s left"
    clock[0] += 50
    assert timetable.left_seconds() == 10 + 1, "one that takes longer than it should is nearly done"
    timetable.finish()
    assert timetable.left_seconds() == 10 + 1, "one that was not run says nothing"
    timetable.finish(200.0)
    timetable.finish(1.0)
    assert timetable.describe() == "6 of 6 runs"


def test_runs_that_were_done_before_say_how_long_the_others_take() -> None:
    timetable = Timetable(["b"], {"a": [2.0, 4.0], "b": []})
    assert timetable.left_seconds() == pytest.approx(3.0, abs=1.0)
    assert timetable.describe().startswith("about ")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min"), (3599, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_times_are_spelled_for_people(seconds: float, said: str) -> None:
    assert spell_seconds(seconds) == said


def test_evaluating_shows_how_many_examples_are_done(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress.show_progress(parse(RunConfig(steps=4)), "torch:single") as show:
        clock[0] += 10
        show(4, [0.5, 0.25], 1.0)
        clock[0] += 10
        show(1024, [], 0.0)
    assert capsys.readouterr().err.splitlines()[1:] == ["torch:single: evaluated on 1,024 held-out examples so far"]
