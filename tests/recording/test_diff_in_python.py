"""`samestep.diff` returns the verdict, prints nothing, and refuses in one line what it cannot compare."""

import dataclasses
import sys
from pathlib import Path

import pytest

import samestep
from samestep.common.steps.log import METRICS
from tests.recording.numpy_script import Script, run
from tests.recording.test_interrupted_diff import with_command

FAILING = 'import sys; sys.exit("boom")'


def test_the_verdict_is_a_frozen_value(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a, b = (run(Script(mistake=mistake), tmp_path / (mistake or "a")) for mistake in ("", "dropped_shard"))
    verdict = samestep.diff(a, str(b))
    assert isinstance(verdict, samestep.RecordedVerdict)
    assert (verdict.kind, verdict.exit_code, verdict.first.phase) == ("named", 4, "data")
    assert [cause.name for cause in verdict.causes] == ["dropped_shard"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.kind = "same"
    assert capfd.readouterr() == ("", "")


def test_a_rerun_that_fails_is_a_note(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a = with_command(run(Script(), tmp_path / "a"), (sys.executable, "-c", FAILING))
    verdict = samestep.diff(a, run(Script(mistake="off_by_a_little"), tmp_path / "b"))
    assert (verdict.kind, verdict.need) == ("unknown", "command")
    assert "the command ended with exit code 1 before its first step" in verdict.notes[-1]
    assert list((a / "reruns").iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_command_may_be_longer_than_a_name(tmp_path: Path) -> None:
    with pytest.raises(samestep.ConfigError, match="command 'nothere' is not found"):
        samestep.diff(run(Script(), tmp_path / "a"), f"nothere {'x' * 5000}")


def test_a_command_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a = run(Script(), tmp_path / "a")
    with pytest.raises(samestep.WorkerFailed, match="nothing is recorded: the command ended with exit code 1 before"):
        samestep.diff(a, f"{sys.executable} -c '{FAILING}'")
    with pytest.raises(samestep.Unavailable, match="imported neither torch nor keras"):
        samestep.diff(a, f"{sys.executable} -c pass")


def _a_run(path: Path) -> None:
    path.mkdir()
    (path / METRICS).write_text("")


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (_a_run, {}, "is a run of samestep, which keeps no gradients: `samestep report` shows it"),
        (Path.mkdir, {}, "is not a record: it holds no rank-0.steps"),
        (Path.touch, {}, "is neither a record nor a command"),
        (lambda path: run(Script(steps=0), path), {}, "have no step in common; record more steps"),
        (lambda path: run(Script(dtype="float64"), path), {}, "is a record in float64 and the other is not"),
        (lambda path: run(Script(), path), {"steps": 0}, "--steps 0 is not from 1 to"),
        (lambda path: run(Script(), path), {"weights_from": "B"}, "unknown side 'B'"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(
    tmp_path: Path, make: object, settings: dict, message: str
) -> None:
    a = run(Script(), tmp_path / "a")
    make(tmp_path / "b")
    with pytest.raises(samestep.ConfigError, match=message) as raised:
        samestep.diff(a, tmp_path / "b", **settings)
    assert "\n" not in str(raised.value)
