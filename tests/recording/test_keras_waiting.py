"""When the steps of a graph are read: together between two looks, but not late, and never more than are kept."""

from pathlib import Path

import pytest

from samestep.common.steps.recording import Recorder, RecordOptions
from samestep.tf_impl.recording import waiting
from samestep.tf_impl.recording.waiting import LONGEST_SECONDS, MOST_STEPS, Waiting

pytestmark = pytest.mark.tf


def reads(monkeypatch: pytest.MonkeyPatch, seconds: float, num: int = 60, **options: int) -> list[int]:
    """Takes steps of so many seconds; returns after which of them all are read."""
    found, now = list[int](), [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    waits = Waiting(Recorder(RecordOptions(str(Path("nowhere")), **options), "tf"))
    for number in range(num):
        now[0] += seconds
        waits.add()
        if waits.is_due:
            waits.end(number + 1, number - (found[-1] if found else -1), has_room=True)
            found.append(number)
    return found


def test_steps_between_two_looks_are_read_with_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reads(monkeypatch, 1e-3, every=10) == [*range(11), 20, 30, 40, 50]


def test_no_more_than_are_kept_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reads(monkeypatch, 1e-6, every=1000)
    assert found == [*range(10), *range(9 + MOST_STEPS, 60, MOST_STEPS)]


def test_none_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.4 * LONGEST_SECONDS
    assert reads(monkeypatch, seconds, every=10)[10:14] == [10, 13, 16, 19]
    assert reads(monkeypatch, 2 * LONGEST_SECONDS, every=10) == [*range(60)]


@pytest.mark.parametrize("options", [{"every": 1}, {"every": 10, "stop_after": 50}])
def test_all_are_read_at_once(monkeypatch: pytest.MonkeyPatch, options: dict[str, int]) -> None:
    assert reads(monkeypatch, 1e-3, **options) == [*range(60)]


@pytest.mark.parametrize(("num_read", "has_room"), [(2, True), (1, False)])
def test_calls_of_many_steps_or_examples_do_not_wait(num_read: int, has_room: bool) -> None:
    waits = Waiting(Recorder(RecordOptions("nowhere", every=100), "tf"))
    waits.add()
    waits.end(40, num_read, has_room)
    waits.add()
    assert waits.is_due
