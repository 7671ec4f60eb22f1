"""The contents of a run directory for an experiment tracker: settings, curves, and outcome."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.files.access import check_there
from samestep.common.flags import Scalar
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.steps.log import METRICS, read_log
from samestep.experiments.comparing.quantities import QUANTITIES
from samestep.experiments.printing.result_columns import figures

_HIDDEN = ("described", "out", "prepare", "timeout_seconds")
"""The fields of a request that say nothing about the run."""


@dataclasses.dataclass(frozen=True)
class LoggedValue:
    """A value at a step.

    Attributes:
        name: The name of the curve.
        step: The number of the step, from 0.
        value: The value.
        time: Its time, in seconds since the epoch.
    """

    name: str
    step: int
    value: float
    time: float


@dataclasses.dataclass(frozen=True)
class Replay:
    """One run, in the form that trackers take.

    Attributes:
        name: Its unique name: the path below the directory that was named.
        directory: The run directory.
        settings: The request.
        curve: The loss of each step, and the seconds of a step and examples per second of each window, in order.
        outcome: The numbers that a run has only once.
        notes: The texts: status, command, versions.
        started: The time of its first point.
    """

    name: str
    directory: Path
    settings: Mapping[str, Scalar]
    curve: Sequence[LoggedValue]
    outcome: Mapping[str, float]
    notes: Mapping[str, str]
    started: float

    @property
    def ended(self) -> float:
        """The time of its last point."""
        return max((point.time for point in self.curve), default=self.started)


def find_runs(paths: Sequence[Path]) -> dict[str, Path]:
    """Returns the runs with a result in and below some directories, by unique names.

    Args:
        paths: Directories.

    Raises:
        ConfigError: There is none.
    """
    found: dict[str, Path] = {}
    for path in paths:
        check_there(path)
        for file in sorted(path.rglob("result.json")) if os.path.isdir(path) else ():  # no error for a long path
            inside = file.parent.relative_to(path)
            name = str(path.resolve().name / inside)
            while found.get(name, file.parent).resolve() != file.parent.resolve():
                name += "-again"
            found[name] = file.parent
    if not found:
        named = ", ".join(map(str, paths))
        raise ConfigError(
            f"{named} holds no finished run; name a directory that `samestep run` or `compare` has written."
        )
    return found


def read_replay(name: str, directory: Path) -> Replay:
    """Reads a run.

    Args:
        name: The name of the run in the tracker.
        directory: The directory of the run.

    Raises:
        ConfigError: It holds no readable result.
    """
    result = load_result(directory)
    curve = _curve(result, directory)
    started = min((point.time for point in curve), default=0.0)
    return Replay(name, directory, _settings(result), curve, outcome(result), _notes(result), started)


def _settings(result: RunResult) -> dict[str, Scalar]:
    plain = dataclasses.asdict(result.config)
    nested = {**plain.pop("options"), **plain.pop("techniques")}
    kept = {name: value for name, value in (plain | nested).items() if name not in _HIDDEN and value is not None}
    every = {"cell": str(Cell.of(result.config)), **kept}
    return {name: _text(value) if isinstance(value, str) else value for name, value in every.items()}


def _curve(result: RunResult, directory: Path) -> list[LoggedValue]:
    """Returns the losses of `metrics.jsonl`, with times counted back from its last change; without the file, without times."""
    file = directory / METRICS
    if not file.exists():
        time = (directory / "result.json").stat().st_mtime
        return [LoggedValue("loss", result.first_step + n, loss, time) for n, loss in enumerate(result.losses)]
    windows, points = read_log(directory).windows, []
    time = file.stat().st_mtime - sum(window.seconds for window in windows)
    for window in windows:
        time += window.seconds
        count = len(window.losses)
        each = {"seconds_per_step": window.seconds / count}
        each |= {"examples_per_second": result.global_batch_size * count / window.seconds} if window.seconds else {}
        points += [LoggedValue("loss", window.first + n, loss, time) for n, loss in enumerate(window.losses)]
        points += [LoggedValue(name, window.step - 1, value, time) for name, value in each.items()]
    return points


def outcome(result: RunResult) -> dict[str, float]:
    """Returns the outcome of a run, keyed by its names in trackers: its metric, and the quantities that trackers get."""
    values, found = figures(result), {_text(result.metric_name): result.metric_value}
    found |= {quantity.tracked_as: values[quantity.key] for quantity in QUANTITIES if quantity.tracked_as}
    return {name: float(value) for name, value in found.items() if value is not None}


def _notes(result: RunResult) -> dict[str, str]:
    about = {
        "status": result.status,
        "parity": result.parity.reason,
        "emulation": result.emulation,
        "command": result.command,
        "device": result.device_note,
        "commit": result.git_commit or "",
        "workload_digest": result.workload_digest,
        **{f"{package}_version": version for package, version in result.versions.items()},
    }
    return {name: _text(text) for name, text in about.items() if text}


def _text(text: str) -> str:
    """Returns a text that is valid UTF-8: a path may contain bytes that form no character, which trackers refuse."""
    return text.encode(errors="backslashreplace").decode()
