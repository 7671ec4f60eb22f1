"""From what the processes left to a RunResult: held against the oracle, with the cause if it is not the same step."""

import dataclasses
import importlib
import time
from collections.abc import Callable
from pathlib import Path

from samestep.common.catalog import strategy_info
from samestep.common.errors import ParityFailed, WorkerFailed
from samestep.common.evidence.parity import Parity, judge, not_judged
from samestep.common.mesh import Mesh
from samestep.common.program import TrainState
from samestep.common.request import FRAMEWORKS, Launch
from samestep.common.runtime.directory import read_losses, write_json
from samestep.common.runtime.parent.curves import curve_path, keep_curve
from samestep.common.runtime.parent.merge import merge
from samestep.common.runtime.process_file import DONE, read_life, read_measured
from samestep.common.runtime.records import Measured, RunResult
from samestep.common.runtime.state_file import read_state
from samestep.common.strategy import NoOptions, Run
from samestep.common.workload.initial import init

ORACLE = "numpy:oracle"
Oracle = Callable[[Run, Launch, float | None], Path | None]
"""Runs the oracle; None if it would take longer than so many seconds."""
Replay = Callable[[int], tuple[list[float], TrainState]]
"""Repeats the run up to a step: its losses and its state there."""


def finish(
    directory: Path, run: Run, launch: Launch, seconds: float, oracle: Oracle, replay: Replay | None
) -> RunResult:
    """Writes `result.json` and removes the reserved `error.json`.

    Args:
        directory: The run directory, its processes done.
        run: What was trained.
        launch: How it was started.
        seconds: What the run took, from the command to its end.
        oracle: Runs the oracle.
        replay: Repeats the run's first steps, for the diagnosis; None where that cannot be done.
    """
    measured = [read_measured(directory, spec.role) for spec in run.strategy.topology(run) if not spec.serves]
    parity = _judge(directory, run, launch, measured[0], seconds, oracle, replay)
    result = merge(run, launch, measured, parity)
    write_json(directory / "result.json", result)
    (directory / "error.json").unlink(missing_ok=True)
    if run.name == ORACLE:
        keep_curve(directory, curve_path(run, launch, result.dataset_sha256))
    return result


def raise_if_missed(result: RunResult) -> None:
    """Turns a missed parity into the error with exit code 4.

    Raises:
        ParityFailed: The run was judged and is not the same step.
    """
    if result.parity.passed is False:
        raise ParityFailed(f"{result.framework}:{result.strategy} did not take the same step: {result.parity.reason}")


def wait_for_processes(directory: Path, run: Run, timeout_seconds: float) -> None:
    """Waits until every process has written its measurements.

    Args:
        directory: The run directory.
        run: Its topology says which processes there are.
        timeout_seconds: How long to wait.

    Raises:
        WorkerFailed: One wrote none in time.
    """
    deadline = time.monotonic() + timeout_seconds
    for spec in run.strategy.topology(run):
        while not spec.serves and read_life(directory, spec.role).phase != DONE:
            if time.monotonic() > deadline:
                raise WorkerFailed(f"{spec.role} left no measurements within {timeout_seconds:g} s.")
            time.sleep(0.05)


def wall_seconds(directory: Path) -> float:
    """How long ago the run's configuration was written or its first process started, whichever was later."""
    started = min(path.stat().st_ctime for path in directory.glob("*.json"))
    return time.time() - max((directory / "config.json").stat().st_mtime, started)


def _judge(
    directory: Path,
    run: Run,
    launch: Launch,
    measured: Measured,
    seconds: float,
    oracle: Oracle,
    replay: Replay | None,
) -> Parity:
    if reason := _why_not_judged(run, launch):
        return not_judged(reason)
    reference = _reference(run, launch, measured.dataset_sha256, None if launch.parity else seconds, oracle)
    if reference is None:
        return not_judged(f"the oracle would take longer than the run's own {seconds:.0f} s; --parity waits for it")
    first, losses = measured.first_step, measured.losses
    reached, wanted = read_state(directory).params, read_state(reference).params
    parity = judge(ORACLE, run.dtype, first, losses, read_losses(reference), reached, wanted)
    if parity.passed or replay is None:
        return parity
    diagnosis = importlib.import_module(FRAMEWORKS["numpy"] + ".diagnosis")
    bad = run.steps - 1 if parity.first_bad_step is None else parity.first_bad_step
    cause = diagnosis.diagnose(run, first, bad, initial_state(run, launch), replay)
    return dataclasses.replace(parity, reason=f"{cause} ({parity.reason})")


def _why_not_judged(run: Run, launch: Launch) -> str:
    if run.name == ORACLE:
        return "the oracle is the reference"
    if run.strategy.compiled_cores(run.options):
        return "compiled, not trained"
    if launch.parity is False:
        return "--no-parity"
    if not run.strategy.synchronous(run.options):
        return "asynchronous: it promises accuracy, not the same step"
    return ""


def _reference(
    run: Run, launch: Launch, dataset_sha256: str, budget_seconds: float | None, oracle: Oracle
) -> Path | None:
    path = curve_path(oracle_of(run), launch, dataset_sha256)
    if (path / "state.npz").exists():
        return path
    patient = dataclasses.replace(launch, out=None, timeout_seconds=max(launch.timeout_seconds, 60.0))
    directory = oracle(oracle_of(run), patient, budget_seconds)
    if directory is not None:
        keep_curve(directory, path)
    return directory


def oracle_of(run: Run) -> Run:
    """The oracle's run of the same steps. What distinguishes two of them decides the oracle's numbers."""
    return dataclasses.replace(
        run,
        framework="numpy",
        strategy=strategy_info("numpy", "oracle"),
        mesh=Mesh((("data", 1),)),
        dtype="float64",
        threads=1,
        options=NoOptions(),
    )


def initial_state(run: Run, launch: Launch) -> TrainState:
    """The state that the run starts from."""
    if launch.start_from is not None:
        return read_state(Path(launch.start_from))
    params = init(run.workload.model, run.seed)
    return TrainState(0, params, {slot: {n: v * 0 for n, v in params.items()} for slot in run.optimizer.slots})
