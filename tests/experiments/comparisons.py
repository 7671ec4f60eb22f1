"""Comparisons whose runs are made up: a real result of long ago, renamed, so that no process is started."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from samestep.common.evidence.parity import Parity, not_judged
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run, write_error, write_json
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.strategy import Run
from samestep.experiments.asked import describe
from samestep.experiments.comparison_file import NAME, write_file
from samestep.experiments.plan import is_oracle
from samestep.experiments.stored import run_directory

TRAINED = load_result(Path(__file__).parents[1] / "data" / "version_1" / "ddp")
PASSED = TRAINED.parity
MISSED = dataclasses.replace(
    PASSED, passed=False, reason="step 3: every gradient is 2.000 x the oracle's", first_bad_step=3
)
UNJUDGED = not_judged("the oracle would take longer than the run's own 6 s; --parity waits for it")
Outcome = Parity | BaseException


def result_of(run: Run, launch: Launch, parity: Parity) -> RunResult:
    """A result as this run could have left it."""
    asked = {"framework": run.framework, "strategy": run.strategy.name, "mesh": str(run.mesh), "dtype": run.dtype}
    return dataclasses.replace(TRAINED, **asked, config=as_config(run, launch), parity=parity)


def keep(directory: Path, rows: Mapping[str, Sequence[RunResult]], **given: object) -> Path:
    """A comparison as it is kept, of results that were made up; returns its directory.

    Args:
        directory: Where to keep it.
        rows: By cell, the oracle's among them: the results, one a round.
        **given: Settings of the comparison beside its cells and rounds, by the names of the flags.
    """
    directory.mkdir(parents=True, exist_ok=True)
    strategies = [cell for cell in rows if not is_oracle(cell)]
    rounds = max(map(len, rows.values()))
    write_file(directory / NAME, describe({"strategies": strategies, "repeats": rounds, **given}))
    for cell, results in rows.items():
        for number, result in enumerate(results, 1):
            (run := run_directory(directory, cell, number)).mkdir(parents=True)
            write_json(run / "config.json", result.config)
            write_json(run / "result.json", result)
    return directory


def make_up(
    monkeypatch: pytest.MonkeyPatch, outcomes: Mapping[str, Outcome | Sequence[Outcome]]
) -> list[tuple[Run, Launch]]:
    """Has every run of a launcher end as it is told, and leave its result in its directory.

    Args:
        monkeypatch: Of the test.
        outcomes: By framework:strategy, one for all its runs or one for each; a strategy that is not there takes the same
            step.

    Returns:
        What was run, as it is run.
    """
    started = []

    def end(launcher: Launcher, run: Run, launch: Launch, *rest: object) -> RunResult:
        started.append((run, launch))
        usual = not_judged("the oracle is the reference") if run.framework == "numpy" else PASSED
        told = outcomes.get(run.name, usual)
        outcome = told[sum(run.name == each.name for each, _ in started) - 1] if isinstance(told, Sequence) else told
        directory = open_run(Path(launch.out), as_config(run, launch)) if launch.out else None
        if isinstance(outcome, BaseException):
            if directory:
                write_error(directory, "parent", outcome)
            raise outcome
        result = result_of(run, launch, outcome)
        if directory:
            write_json(directory / "result.json", result)
        return result

    monkeypatch.setattr(Launcher, "run", end)
    monkeypatch.setattr(Launcher, "warm", lambda *_: None)
    return started
