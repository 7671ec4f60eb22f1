"""The oracle's curves: taken as far as there is time for, continued later, and kept whole or not at all."""

import ast
import dataclasses
import itertools
import math
import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from samestep.common.batch import batches
from samestep.common.files.writing import replacing
from samestep.common.files.written import LIST
from samestep.common.judging.reference_run import Rerun
from samestep.common.judging.verdict import Trial, arrays_read, judge_trial
from samestep.common.program import TrainState
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.measured import Measured
from samestep.common.runtime.parent.judging import finishing, reference_curves
from samestep.common.runtime.parent.judging.reference_curves import (
    LEAST_STEPS,
    Curve,
    curve_folder,
    keep_curve,
    reach_curve,
    read_curve,
)
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.state_file import write_state
from samestep.common.runtime.topology import UNEVALUATED
from samestep.common.runtime.worker import loop
from samestep.common.steps.log import Log, Window
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.workload.data.dataset import load
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer
from samestep.experiments.comparing.quantities import same_step
from samestep.experiments.printing.tables import report
from tests.cells import SIZED
from tests.conftest import RunCell

TINY = RunConfig("numpy", "oracle", "synthetic-mlp+width=4", batch_size=4, dtype="float64", steps=100, seed=7)
SECONDS_PER_STEP = 0.5
FIRST = Measured(role="rank-0", rank=0, dataset_sha256="of the data", device_note="")


class Oracle:
    """The oracle in the present process, on a clock that moves only while it trains."""

    def __init__(self, start: TrainState | None = None) -> None:
        self.start = start
        self.now = 0.0
        self.legs: list[tuple[int, int]] = []

    def steps(self, run: Run, start: TrainState | None = None) -> Curve:
        program, split = TrainingProgram(run), load(run.workload.data)
        if start is not None or self.start is not None:
            program.restore(start or self.start)
        first = program.state().step
        stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, first)
        for batch in itertools.islice(stream, run.steps - first):
            program.step(batch)
        self.legs.append((first, run.steps))
        seconds = SECONDS_PER_STEP * (run.steps - first)
        self.now += seconds
        window = Window(run.steps, seconds, tuple(program.losses()))
        return Curve(Log(None, (window,)), program.state())


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Oracle:
    """An oracle with an empty cache."""
    oracle = Oracle()
    monkeypatch.setattr(reference_curves.time, "monotonic", lambda: oracle.now)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return oracle


def reached(oracle: Oracle, budget_seconds: float, steps: int = 100) -> Curve:
    config = dataclasses.replace(TINY, steps=steps)
    return reach_curve(parse(config), launch_of(config), FIRST, budget_seconds, oracle)


def folder() -> Path:
    return curve_folder(parse(TINY), launch_of(TINY), FIRST.dataset_sha256)


def kept() -> set[str]:
    return {path.name for path in folder().iterdir()} - {"lock", LIST}


def assert_is_the_oracles(curve: Curve, steps: int) -> None:
    """Bit by bit what the oracle does without a stop, in a run of a hundred steps."""
    whole = Oracle().steps(parse(TINY))
    assert curve.losses == whole.losses[:steps]
    assert curve.state.step == steps
    if steps == 100:
        for name, value in whole.state.params.items():
            np.testing.assert_array_equal(curve.state.params[name], value)


@pytest.mark.parametrize("steps", [1, 7, LEAST_STEPS])
def test_a_short_run_is_judged_to_its_end_however_long_it_takes(oracle: Oracle, steps: int) -> None:
    assert reached(oracle, 0.0, steps).state.step == steps
    assert oracle.legs == [(0, steps)]
    assert kept() == {str(steps)}


def test_a_long_run_is_judged_as_far_as_its_own_time_allows_and_later_runs_go_on(oracle: Oracle) -> None:
    assert_is_the_oracles(reached(oracle, 0.0), 20)
    assert kept() == {"20.cut"}
    assert_is_the_oracles(reached(oracle, 15.4), 50)  # 30 steps more, at half a second each
    assert kept() == {"50.cut"}
    assert_is_the_oracles(reached(oracle, 9.9), 50)  # 19 steps are not worth a start
    assert_is_the_oracles(reached(oracle, math.inf), 100)
    assert kept() == {"100"}
    assert_is_the_oracles(reached(oracle, 0.0), 100)
    assert oracle.legs == [(0, 20), (20, 50), (50, 100)]


def test_the_first_steps_say_how_many_more_there_is_time_for(oracle: Oracle) -> None:
    assert_is_the_oracles(reached(oracle, 30.0), 60)
    assert oracle.legs == [(0, 20), (20, 60)]


def test_the_last_few_steps_are_worth_a_start(oracle: Oracle) -> None:
    reached(oracle, 0.0, 24)
    assert reached(oracle, 2.0, 24).state.step == 24
    assert oracle.legs == [(0, 20), (20, 24)]


def test_whoever_waits_for_every_step_gets_it_at_once(oracle: Oracle) -> None:
    assert_is_the_oracles(reached(oracle, math.inf), 100)
    assert oracle.legs == [(0, 100)]


def test_the_curve_of_a_longer_run_serves_a_shorter_one(oracle: Oracle) -> None:
    reached(oracle, math.inf)
    assert reached(oracle, 0.0, 60).losses[:60] == reached(oracle, math.inf).losses[:60]
    assert oracle.legs == [(0, 100)]
    assert reached(oracle, math.inf, 60).state.step == 60  # whoever waits for every step also gets the weights
    assert oracle.legs == [(0, 100), (0, 60)]
    assert reached(oracle, 0.0, 60).state.step == 60
    assert kept() == {"60", "100"}
    assert_is_the_oracles(reached(oracle, math.inf), 100)
    assert len(oracle.legs) == 2


@pytest.mark.parametrize("name", ["state.npz", "metrics.jsonl"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-40])])
def test_a_damaged_curve_is_made_anew(oracle: Oracle, name: str, damage: object) -> None:
    reached(oracle, 0.0)
    damage(folder() / "20.cut" / name)
    assert_is_the_oracles(reached(oracle, 0.0), 20)
    assert oracle.legs == [(0, 20), (0, 20)]
    reached(oracle, 0.0)
    assert len(oracle.legs) == 2


def test_a_curve_that_lacks_losses_is_made_anew(oracle: Oracle) -> None:
    reached(oracle, 0.0)
    (folder() / "20.cut").rename(folder() / "30.cut")
    assert_is_the_oracles(reached(oracle, 0.0), 20)


def test_two_runs_that_keep_one_curve_at_once_leave_it_whole(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def late(source: Path, target: Path, **where: int) -> None:
        if Path(target).parent == folder():
            Path(target).mkdir()
            (Path(target) / "of another process").touch()
        replace(source, target, **where)

    monkeypatch.setattr(reference_curves.os, "replace", late)
    assert_is_the_oracles(reached(oracle, 0.0), 20)
    assert kept() == {"20.cut"}
    assert {path.name for path in (folder() / "20.cut").iterdir()} == {"of another process"}


def test_a_curve_that_another_run_removes_is_made_anew(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    reached(oracle, 0.0)
    read = reference_curves.read_curve

    def removed(directory: Path, *_: object) -> Curve:
        for path in directory.iterdir():
            path.unlink()
        return read(directory)

    monkeypatch.setattr(reference_curves, "read_curve", removed)
    assert_is_the_oracles(reached(oracle, 0.0), 20)


def test_what_cannot_be_written_leaves_nothing_behind(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: Path, state: TrainState) -> None:
        with replacing(directory / "state.npz") as file:
            file.write(b"half of it")
            raise OSError("no room")

    monkeypatch.setattr(reference_curves, "write_state", full)
    assert_is_the_oracles(reached(oracle, 0.0), 20)
    assert kept() == set()


OTHERS = [
    {"workload": "synthetic-mlp+width=5"},
    {"workload": "synthetic-mlp+width=4+examples=64"},
    {"batch_size": 8},
    {"optimizer": "adamw"},
    {"learning_rate": 0.02},
    {"seed": 8},
    {"threads": 2},
    {"techniques": Techniques(clip_norm=1.0)},
    {"techniques": Techniques(accumulation_steps=2)},
    {"start_from": "runs/begun"},
]


def test_what_decides_the_numbers_decides_the_folder_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = Path("runs/begun")
    begun.mkdir(parents=True)
    write_state(begun, TrainingProgram(parse(TINY)).state())

    def named(sha256: str = "of the data", **changes: object) -> Path:
        config = dataclasses.replace(TINY, **changes)
        return curve_folder(parse(config), launch_of(config), sha256)

    same = [named(), named(steps=7), named(out="elsewhere"), named(parity=True), named(timeout_seconds=5.0)]
    assert len(set(same)) == 1
    different = [named(), named(sha256="of other data"), *(named(**change) for change in OTHERS)]
    write_state(begun, Oracle().steps(parse(dataclasses.replace(TINY, steps=1))).state)
    different.append(named(start_from="runs/begun"))
    monkeypatch.setattr(np, "__version__", "another")
    different.append(named())
    monkeypatch.setattr(reference_curves, "_source_digest", lambda: "another")
    different.append(named())
    assert len(set(different)) == len(different)


COMMON = Path(reference_curves.__file__).parents[3]
COMPUTES_NO_STEP = {"costs", "files", "judging", "mistakes", "runtime"}
"""Folders of `common/` that the oracle's files import from as well: for its row in the catalogue, its arrays, its mutants."""


def test_all_that_the_oracle_computes_with_names_its_curves() -> None:
    own = [path for folder in ("reference", "workload") for path in (COMMON / folder).rglob("*.py")]
    nodes = (node for path in own for node in ast.walk(ast.parse(path.read_text())))
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    parts = [module.split(".")[2:] for module in named if module.startswith("samestep.common.")]
    files = {COMMON.joinpath(*each).with_suffix(".py") for each in parts if each[0] not in COMPUTES_NO_STEP}
    assert COMMON / "techniques" / "schedule" / "statement.py" in reference_curves.sources()
    assert {path for path in files if path.is_file()} <= {*own, *reference_curves.sources()}
    assert {*own} <= {*reference_curves.sources()}


def test_a_run_that_continues_is_judged_from_its_first_step_on(oracle: Oracle, tmp_path: Path) -> None:
    ten, sixty = (dataclasses.replace(TINY, steps=steps) for steps in (10, 60))
    write_state(tmp_path, oracle.steps(parse(ten)).state)
    oracle.start = reference_curves.read_state(tmp_path)
    launch = dataclasses.replace(launch_of(sixty), start_from=str(tmp_path))
    measured = dataclasses.replace(FIRST, first_step=10)
    for budget, end in ((0.0, 30), (math.inf, 60)):
        curve = reach_curve(parse(sixty), launch, measured, budget, oracle)
        assert (len(curve.losses), curve.state.step) == (end - 10, end)
    whole = Oracle().steps(parse(sixty))
    assert curve.losses == whole.losses[10:]
    assert oracle.legs == [(0, 10), (10, 30), (30, 60)]


# --- real runs --------------------------------------------------------------------------------------------------------


def test_the_oracle_continues_bit_by_bit_in_a_process_of_its_own(launcher: Launcher) -> None:
    launch = launch_of(dataclasses.replace(TINY, evaluate=True))
    short, long = (parse(dataclasses.replace(TINY, steps=steps)) for steps in (21, 50))
    rerun = launcher.reference_rerun(launch)
    begun, whole = rerun.steps(short), rerun.steps(long)
    continued = rerun.steps(long, begun.state)
    assert begun.losses + continued.losses == whole.losses
    assert continued.state.step == 50
    for name, value in whole.state.params.items():
        np.testing.assert_array_equal(continued.state.params[name], value)
    assert whole.log.seconds > 0


def test_the_oracle_leaves_the_held_out_examples_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = parse(TINY)
    program, data = TrainingProgram(run), load(run.workload.data)

    class Quiet:
        rank = 0

        def beat(self, step: int) -> None: ...

    launch = launch_of(dataclasses.replace(TINY, evaluate=True))
    assert loop.evaluate(program, run, launch, data, Quiet()) is not None
    monkeypatch.setenv(UNEVALUATED, "1")
    assert loop.evaluate(program, run, launch, data, Quiet()) is None


def test_the_oracles_own_run_keeps_its_curve(
    run_cell: RunCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = run_cell("numpy:oracle", SIZED["mlp"], dtype="float64", steps=3, out=str(tmp_path / "run"))
    (path,) = (tmp_path / "cache" / "samestep" / "oracle").glob("*/3")
    assert read_curve(path).losses == result.losses


@pytest.mark.torch
def test_a_verdict_reads_of_both_states_only_what_it_compares(
    run_cell: RunCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trials: list[Trial] = []
    monkeypatch.setattr(finishing, "judge_trial", lambda trial: trials.append(trial) or judge_trial(trial))
    for out in ("cold", "warm"):  # the second time, the reference's curve is read from the cache
        result = run_cell("torch:single", SIZED["mlp"], optimizer="adamw", steps=2, out=str(tmp_path / out))
        assert result.parity.passed and result.parity.max_absolute_weight is not None
    for curve in (trials[-1].seen, trials[-1].wanted):
        assert curve.state.params and curve.state.step == 2
        assert curve.state.slots == {}


def test_a_verdict_on_a_users_optimizer_in_float64_reads_its_state_as_well() -> None:
    run = dataclasses.replace(parse(TINY), optimizer=UserOptimizer(0.0, "own.py:model"))
    assert arrays_read(run) == ()
    assert arrays_read(dataclasses.replace(run, dtype="float32")) == arrays_read(parse(TINY)) != ()


@pytest.mark.torch
def test_a_plain_run_says_how_many_of_its_steps_were_judged(
    run_cell: RunCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fields = {"dtype": "float64", "optimizer": "adamw", "steps": 30}

    def in_no_time(
        run: Run, launch: Launch, measured: Measured, budget_seconds: float, rerun: Rerun, names: Collection[str]
    ) -> Curve:
        return reach_curve(run, launch, measured, min(budget_seconds, 0.0), rerun, names)

    with monkeypatch.context() as patched:
        patched.setattr(finishing, "reach_curve", in_no_time)
        result = run_cell("torch:single", SIZED["mlp"], parity=None, **fields)
    assert result.parity.passed
    assert (result.parity.steps, len(result.losses)) == (20, 30)
    assert result.parity.max_absolute_weight is None
    assert result.parity.max_relative_loss is not None
    assert same_step(result) == "yes, 20 of 30"
    said = " ".join(report(result).split())
    assert "torch:single took the oracle's steps, judged at 20 of 30; largest relative loss deviation" in said
    assert said.endswith("; --parity judges every step.")

    whole = run_cell("torch:single", SIZED["mlp"], parity=True, **fields)
    assert (whole.parity.passed, whole.parity.steps, same_step(whole)) == (True, 30, "yes")
    assert whole.parity.max_absolute_weight is not None
    assert "took the oracle's 30 steps" in report(whole)
    assert "--parity judges" not in report(whole)


def test_a_curve_in_a_cache_that_cannot_be_written_is_lost_and_no_more(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert_is_the_oracles(reached(oracle, 0.0), 20)
    keep_curve(reached(oracle, 0.0), parse(TINY), launch_of(TINY), folder())
