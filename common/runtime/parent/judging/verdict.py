"""From what the processes left to a RunResult: held against the oracle, with the cause if it is not the same step."""

import contextlib
import dataclasses
import functools
import importlib
import math
from pathlib import Path

from samestep.common.errors import ConfigError, ParityFailed, WorkerFailed
from samestep.common.files.written import seal
from samestep.common.judging.conclusion import explain_missed
from samestep.common.judging.parity import Parity, judge, judge_statistics, not_judged, relative_distance
from samestep.common.judging.roundoff import (
    MASTERS_IN_TWO_BYTES,
    fit_in_two_bytes,
    gradient_error,
    statistics_noise,
)
from samestep.common.program import SKIPPED, TrainState
from samestep.common.request import FRAMEWORKS, ORACLE, Launch
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.integrity import check_losses
from samestep.common.runtime.parent.judging.added import name_sums
from samestep.common.runtime.parent.judging.attribution import Repeat, attribute, find_other_step
from samestep.common.runtime.parent.judging.curves import (
    Curve,
    Oracle,
    curve_folder,
    keep_curve,
    reach_curve,
    read_curve,
)
from samestep.common.runtime.parent.judging.ported import AskPort, Ports, Taken, is_right_but_for_port, judge_with_port
from samestep.common.runtime.parent.judging.reference import reference_of
from samestep.common.runtime.parent.judging.rounding import GoOn, excuse
from samestep.common.runtime.parent.judging.updates import judge_updates
from samestep.common.runtime.parent.merge import merge
from samestep.common.runtime.parent.models.carrying import in_own_names
from samestep.common.runtime.parent.tracing import write_trace
from samestep.common.runtime.process_file import read_measured
from samestep.common.runtime.records import Measured, RunResult
from samestep.common.runtime.state_file import digest_state, read_state, remove_state
from samestep.common.strategy import Run
from samestep.common.workload.initial import init, initial_buffers
from samestep.common.workload.models.own import OwnSpec
from samestep.common.workload.optimizers import OWN


def finish(
    directory: Path,
    run: Run,
    launch: Launch,
    seconds: float,
    oracle: Oracle,
    repeat: Repeat | None,
    ports: Ports | None = None,
) -> RunResult:
    """Writes `result.json` and removes the reserved `error.json`.

    Args:
        directory: The run directory, its processes done.
        run: What was trained.
        launch: How it was started.
        seconds: What the run took, from the command to its end.
        oracle: Runs the oracle.
        repeat: Takes the steps of a run again, or of one like it, for the diagnosis; None where that cannot be done.
        ports: Holds the two models of a file against each other; None likewise.

    Raises:
        WorkerFailed: Somebody removed or changed a file of the run while it ran.
    """
    measured = [read_measured(directory, spec.role) for spec in run.strategy.topology(run) if not spec.serves]
    if not measured[0].compiled:
        _check_curve(directory, measured[0])
    parity = _judge(directory, run, launch, measured[0], seconds, oracle, repeat, ports)
    result = dataclasses.replace(merge(run, launch, measured, parity), state_sha256=digest_state(directory))
    if launch.traces and not result.compiled:
        write_trace(directory, run, measured)
    write_json(directory / "result.json", result)
    with contextlib.suppress(OSError):  # there is a result; what cannot be tidied up takes room, and no more
        (directory / "error.json").unlink(missing_ok=True)
        if run.described() == reference_of(run).described() and launch.needs_state:
            keep_curve(read_curve(directory), run, launch, curve_folder(run, launch, result.dataset_sha256))
        if not launch.keep_state and parity.passed is not False:  # a wrong state is evidence
            remove_state(directory)
        seal(directory)
    return result


def _check_curve(directory: Path, measured: Measured) -> None:
    """Makes sure that the directory has the losses that were measured, for whoever reads it later."""
    try:
        check_losses(directory, measured.first_step, measured.losses)
    except ConfigError as error:
        raise WorkerFailed(str(error)) from None


def raise_if_missed(result: RunResult) -> None:
    """Turns a missed parity into the error with exit code 4.

    Raises:
        ParityFailed: The run was judged and is not the same step.
    """
    if result.parity.passed is False:
        raise ParityFailed(explain_missed([f"{result.framework}:{result.strategy}"], result.parity.reason))


def _judge(
    directory: Path,
    run: Run,
    launch: Launch,
    measured: Measured,
    seconds: float,
    oracle: Oracle,
    repeat: Repeat | None,
    ports: Ports | None,
) -> Parity:
    if reason := _why_not_judged(run, launch):
        return not_judged(reason)
    curve = _reference(run, launch, measured, seconds, oracle)
    state, first = read_state(directory), measured.first_step
    skipped = _first_skipped(state, first)
    count = min(len(measured.losses), len(curve.losses), run.steps if skipped is None else skipped - first + 1)
    is_whole = curve.state.step == run.steps and skipped is None
    wanted = in_own_names(run, curve.state.params) if is_whole else None
    reached, losses = state.params, measured.losses[:count]
    is_ours = not isinstance(run.workload.model, OwnSpec)  # otherwise the reference keeps other buffers
    if is_ours:
        reached, wanted = reached | state.buffers, wanted and wanted | curve.state.buffers
    name, noise = reference_of(run).name, _noise(run)
    wanted_losses, allowed = curve.losses[:count], gradient_error(run)
    parity = judge(name, run.dtype, first, losses, wanted_losses, reached, wanted, noise, allowed)
    if is_ours and is_whole:
        parity = _judge_statistics(run, parity, state, curve.state)
    go_on = functools.partial(_go_on, oracle, _patient(launch))
    if is_whole and run.optimizer.name == OWN:
        parity = judge_updates(run, parity, state, curve.state, initial_state(run, launch), go_on)
    ask = None if ports is None or launch.start_from is not None else functools.partial(ports.ask, launch)
    if not parity.passed and repeat is not None:
        parity = _judge_again(run, launch, parity, Taken(losses, wanted_losses, reached, noise), go_on, repeat, ask)
        if not parity.passed:
            return parity
    missed = "" if repeat is None else find_other_step(run, launch, first, parity, repeat)
    if missed and not is_right_but_for_port(run, first, noise, repeat, ask):
        return dataclasses.replace(parity, passed=False, reason=missed)
    if parity.passed and run.techniques.precision is not None and fit_in_two_bytes(state.params):
        return dataclasses.replace(parity, passed=False, reason=MASTERS_IN_TWO_BYTES)
    if parity.passed and skipped is not None and not parity.is_amplified:
        return dataclasses.replace(parity, reason=f"judged to step {skipped}, whose update the loss scaler skipped")
    return parity


def _judge_again(
    run: Run,
    launch: Launch,
    parity: Parity,
    taken: Taken,
    go_on: GoOn,
    repeat: Repeat,
    ask: AskPort | None,
) -> Parity:
    """Judges a run that is off: it may be by rounding, or by what is between two implementations; else its cause is found."""
    start = initial_state(run, launch)
    parity = excuse(run, parity, taken.wanted, start, repeat, go_on)
    if parity.passed:
        return parity
    return judge_with_port(run, parity, taken, repeat, ask, lambda: _find_cause(run, launch, parity, start, repeat))


def _go_on(oracle: Oracle, patient: Launch, alone: Run, state: TrainState | None) -> Curve:
    return oracle(alone, patient, state)


def _find_cause(run: Run, launch: Launch, parity: Parity, start: TrainState, repeat: Repeat) -> str:
    """Finds why a run is not the same step: by its suspects, or of our own models by the known mistakes."""
    if isinstance(run.workload.model, OwnSpec):
        return attribute(run, launch, name_sums(run, parity), repeat)
    diagnosis = importlib.import_module(FRAMEWORKS["numpy"] + ".diagnosis")
    bad = run.steps - 1 if parity.first_bad_step is None else parity.first_bad_step
    cause = diagnosis.diagnose(run, start.step, bad, start, functools.partial(_shorter, run, repeat))
    return f"{cause} ({parity.reason})"


def _judge_statistics(run: Run, parity: Parity, state: TrainState, wanted: TrainState) -> Parity:
    kernels = {n: wanted.params[n] for n, param in run.workload.model.params().items() if param.role == "kernel"}
    allowed = statistics_noise(run, relative_distance(state.params, kernels))
    if allowed is None:
        return parity
    return judge_statistics(parity, relative_distance(state.buffers, wanted.buffers), allowed)


def _first_skipped(state: TrainState, first: int) -> int | None:
    """The first step of a run whose update its loss scaler skipped: the oracle took it, so later steps are other ones."""
    skipped = state.local[0].get(SKIPPED, ()) if state.local else ()
    return next((int(step) for step in skipped if step >= first), None)


def _noise(run: Run) -> float:
    """How far rounding alone may move a weight of a user's model under AdamW.

    Their model may have parameters whose true gradient is zero: a bias before a normalisation, the bias of an attention's
    keys. What is computed instead is rounding, about 2^-53 where numbers are near one. Adam divides it by its own size or by
    epsilon, whichever is larger, so that a step moves the weight by up to learning rate * 2^-53 / epsilon.
    """
    if not isinstance(run.workload.model, OwnSpec) or run.optimizer.name != "adamw":
        return 0.0
    return run.steps * run.optimizer.learning_rate * 2.0**-53 / run.optimizer.epsilon


def _shorter(run: Run, repeat: Repeat, steps: int) -> tuple[list[float], TrainState]:
    """Repeats a run up to a step: its losses and its state there."""
    return repeat(dataclasses.replace(run, steps=steps))


def _why_not_judged(run: Run, launch: Launch) -> str:
    if run.described() == reference_of(run).described():
        return "the oracle is the reference" if run.name == ORACLE else f"{run.name} in float64 is the reference"
    if run.strategy.compiled_cores(run.options):
        return "compiled, not trained"
    if launch.parity is False:
        return "--no-parity"
    if run.techniques.compress is not None and isinstance(run.workload.model, OwnSpec):
        return f"--compress changes the step, and the oracle, which takes it likewise, has no {run.workload.name}"
    if not run.strategy.synchronous(run.options):
        return "asynchronous: it promises accuracy, not the same step"
    return ""


def _reference(run: Run, launch: Launch, measured: Measured, seconds: float, oracle: Oracle) -> Curve:
    """The oracle's curve: to the run's end with `--parity`, otherwise as far as the run's own time allows."""
    return reach_curve(reference_of(run), _patient(launch), measured, math.inf if launch.parity else seconds, oracle)


def _patient(launch: Launch) -> Launch:
    return dataclasses.replace(launch, out=None, timeout_seconds=max(launch.timeout_seconds, 60.0))


def initial_state(run: Run, launch: Launch) -> TrainState:
    """The state that the run starts from.

    Args:
        run: What is trained.
        launch: How it is started; it names the run to continue, if there is one.
    """
    if launch.start_from is not None:
        return read_state(Path(launch.start_from))
    params = init(run.workload.model, run.seed)
    slots = {slot: {n: v * 0 for n, v in params.items()} for slot in run.optimizer.slots}
    return TrainState(0, params, slots, initial_buffers(run.workload.model))
