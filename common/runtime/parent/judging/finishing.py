"""Turns what the processes of a run left into its result, with the verdict."""

import contextlib
import dataclasses
import functools
import math
from pathlib import Path

from samestep.common.errors import ConfigError, ParityFailed, WorkerFailed
from samestep.common.files.written import seal
from samestep.common.judging.conclusion import explain_missed
from samestep.common.judging.parity import Parity, not_judged
from samestep.common.judging.reference_run import reference_of
from samestep.common.judging.rerun import Rerun
from samestep.common.judging.verdict import Trial, judge_trial, why_not_judged
from samestep.common.request import Launch
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.engines.meeting import forget_meeting, read_hosts
from samestep.common.runtime.integrity import check_losses
from samestep.common.runtime.measured import Measured
from samestep.common.runtime.parent.chrome_trace import write_trace
from samestep.common.runtime.parent.judging.ports import Ports
from samestep.common.runtime.parent.judging.reference_curves import curve_folder, keep_curve, reach_curve, read_curve
from samestep.common.runtime.parent.merge import merge
from samestep.common.runtime.parent.models.weight_transfer import in_own_names
from samestep.common.runtime.process_file import read_measured
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.start import initial_state
from samestep.common.runtime.state_file import digest_state, remove_state
from samestep.common.steps.log import read_log
from samestep.common.strategy import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """A run whose processes are done.

    Attributes:
        directory: The directory of the run.
        run: What was trained.
        launch: How it was started.
        seconds: What the run took, from the command to its end.
    """

    directory: Path
    run: Run
    launch: Launch
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Means:
    """What a verdict may use beside the files of a run.

    Attributes:
        alone: Takes the steps of the reference.
        rerun: Takes steps of the run again, or of one like it; None where that cannot be done.
        ports: Holds the two models of a file against each other; None likewise.
    """

    alone: Rerun
    rerun: Rerun | None = None
    ports: Ports | None = None


def finish(finished: Finished, means: Means) -> RunResult:
    """Writes `result.json` and removes the reserved `error.json`.

    Args:
        finished: The run.
        means: What its verdict may use.

    Raises:
        WorkerFailed: Somebody removed or changed a file of the run while it ran.
    """
    directory, run, launch = finished.directory, finished.run, finished.launch
    measured = [read_measured(directory, spec.role) for spec in run.strategy.topology(run) if not spec.serves]
    if not measured[0].compiled:
        _check_curve(directory, measured[0])
    reference = reference_of(run)
    parity = _judge(finished, reference, measured[0], means)
    result = dataclasses.replace(
        merge(run, launch, measured, parity),
        state_sha256=digest_state(directory),
        hosts=read_hosts(directory, [spec.role for spec in run.strategy.topology(run)]),
        lost_steps=0 if measured[0].attempt == 1 else read_log(directory).lost_steps,
    )
    if launch.traces and not result.compiled:
        write_trace(directory, run, measured)
    write_json(directory / "result.json", result)
    with contextlib.suppress(OSError):  # there is a result; what cannot be tidied up takes room, and no more
        (directory / "error.json").unlink(missing_ok=True)
        forget_meeting(directory, [spec.role for spec in run.strategy.topology(run)])
        if run.described() == reference.described() and launch.needs_state:
            keep_curve(read_curve(directory), run, launch, curve_folder(run, launch, result.dataset_sha256))
        if not launch.keep_state and parity.passed is not False:  # a wrong state is evidence
            remove_state(directory)
        seal(directory)
    return result


def raise_if_missed(result: RunResult) -> None:
    """Turns a missed parity into the error with exit code 4.

    Raises:
        ParityFailed: The run was judged and is not the same step.
    """
    if result.parity.passed is False:
        raise ParityFailed(explain_missed([f"{result.framework}:{result.strategy}"], result.parity.reason))


def _check_curve(directory: Path, measured: Measured) -> None:
    """Makes sure that the directory has the losses that were measured, for whoever reads it later."""
    try:
        check_losses(directory, measured.first_step, measured.losses)
    except ConfigError as error:
        raise WorkerFailed(str(error)) from None


def _judge(finished: Finished, reference: Run, measured: Measured, means: Means) -> Parity:
    """Holds a run against its reference, whose curve is in the cache or is taken now.

    With `--parity` the reference goes to the run's end, otherwise as far as the run's own time allows.
    """
    run, launch = finished.run, finished.launch
    if reason := why_not_judged(run, reference, launch.parity is not False):
        return not_judged(reason)
    budget_seconds = math.inf if launch.parity else finished.seconds
    is_continued, ports = launch.start_from is not None, means.ports
    return judge_trial(
        Trial(
            run=run,
            reference=reference,
            seen=read_curve(finished.directory),
            wanted=reach_curve(reference, launch, measured, budget_seconds, means.alone),
            start=functools.partial(initial_state, run, launch),
            is_continued=is_continued,
            in_own_names=functools.partial(in_own_names, run),
            alone=means.alone,
            rerun=means.rerun,
            ask=None if ports is None or is_continued else functools.partial(ports.ask, launch),
        )
    )
