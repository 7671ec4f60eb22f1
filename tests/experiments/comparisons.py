"""Comparisons whose runs are made up: a real result of long ago, renamed, so that no process is started."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.judging.parity import Parity, not_judged
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run, write_error
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.strategy import Run
from samestep.experiments.comparing.comparison_file import NAME, write_file
from samestep.experiments.comparing.comparison_request import describe
from samestep.experiments.comparing.stored import make_place, run_directory
from tests.results import leave

TRAINED = load_result(Path(__file__).parents[1] / "data" / "ddp_of_six_steps")
PASSED = TRAINED.parity
MISSED = dataclasses.replace(
    PASSED, passed=False, reason="step 3: every gradient is 2.000 x the oracle's", first_bad_step=3
)
UNJUDGED = not_judged("the oracle would take longer than the run's own 6 s; --parity waits for it")
Outcome = Parity | BaseException


def result_of(run: Run, launch: Launch, parity: Parity) -> RunResult:
    """A result as this run could have left it."""
    config = as_config(run, launch)
    same = ("framework", "strategy", "workload", "mesh", "dtype", "seed", "steps", "optimizer")
    asked = {name: getattr(config, name) for name in same} | {"global_batch_size": config.batch_size}
    losses = tuple(itertools.islice(itertools.cycle(TRAINED.losses), run.steps))
    parity = dataclasses.replace(parity, steps=min(parity.steps, run.steps))
    return dataclasses.replace(TRAINED, **asked, losses=losses, config=config, parity=parity)


def keep(directory: Path, rows: Mapping[str, Sequence[RunResult]], **given: object) -> Path:
    """A comparison as it is kept, of results that were made up; returns its directory.

    Args:
        directory: Where to keep it.
        rows: By cell, the oracle's among them: the results, one a round.
        **given: Settings of the comparison beside its cells and rounds, by the names of the flags.
    """
    directory.mkdir(parents=True, exist_ok=True)
    strategies = [cell for cell in rows if not Cell.parse(cell).is_oracle]
    rounds = max(map(len, rows.values()))
    first = next(
        result.config for cell, (result, *_) in rows.items() if not (Cell.parse(cell).is_oracle and strategies)
    )
    shared = {name: getattr(first, name) for name in ("workload", "timeout_seconds", "parity", "keep_state", "seed")}
    write_file(directory / NAME, describe({"strategies": strategies, "repeats": rounds, **shared, **given}))
    for cell, results in rows.items():
        for number, result in enumerate(results, 1):
            leave(run_directory(directory, Cell.parse(cell), number), result)
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
            leave(directory, result)
        return result

    monkeypatch.setattr(Launcher, "run", end)
    monkeypatch.setattr(Launcher, "warm", lambda *_: None)
    return started


def placed(directory: Path, cell: str, number: int) -> Path:
    """Makes the folder that a cell's rounds are in; returns where one is run."""
    run = run_directory(directory, Cell.parse(cell), number)
    make_place(run, directory)
    return run
