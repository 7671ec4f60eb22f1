"""Turns the files that the processes of a run left into its result, with the verdict."""

import contextlib
import dataclasses
import functools
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from samestep.common.errors import ConfigError, ParityFailed, WorkerFailed
from samestep.common.files.written import seal
from samestep.common.judging.parity import Parity, not_judged
from samestep.common.judging.reference_run import Curve, Rerun, reference_of
from samestep.common.judging.verdict import Trial, arrays_read, judge_trial, why_not_judged
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run, write_json
from samestep.common.runtime.integrity import check_losses
from samestep.common.runtime.measured import Measured
from samestep.common.runtime.parent.judging.reference_curves import curve_folder, keep_curve, reach_curve, read_curve
from samestep.common.runtime.parent.merge import count_by_host, merge
from samestep.common.runtime.process_file import read_measured
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import STATE, digest_state, read_state, write_state
from samestep.common.runtime.topology import UNEVALUATED
from samestep.common.steps.log import Log, read_log
from samestep.common.strategy import Run

if TYPE_CHECKING:
    from samestep.common.judging.ported import PortedModel
    from samestep.common.program import TrainState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """A run whose processes have ended, with what its verdict may use in addition to their files.

    Attributes:
        directory: The directory of the run.
        run: What was trained.
        launch: How it was started.
        seconds: How long the run took, from the command to its end.
        alone: Takes the steps of the reference.
        rerun: Repeats steps of the run, or of a variant of it; None if that is not possible.
        ask: (launch, run, steps) -> the port of a model, as in `AskPort`; None if that is not possible.
        hosts: The hosts on which an engine started its processes, as `read_hosts` returns them.
    """

    directory: Path
    run: Run
    launch: Launch
    seconds: float
    alone: Rerun
    rerun: Rerun | None = None
    ask: "Callable[[Launch, Run, int], PortedModel | None] | None" = None
    hosts: tuple[dict[str, str], ...] = ()


def finish(finished: Finished) -> RunResult:
    """Judges a run, writes `result.json`, removes the reserved `error.json`, and returns the result.

    Raises:
        WorkerFailed: A file of the run was removed or changed while it ran.
    """
    directory, run, launch = finished.directory, finished.run, finished.launch
    measured = [read_measured(directory, spec.role) for spec in run.strategy.topology(run) if not spec.serves]
    log, reference = _read_log(directory, measured[0]), reference_of(run)
    parity = _judge(finished, reference, measured[0], log)
    result = merge(run, launch, measured, parity)
    result = dataclasses.replace(
        result,
        state_sha256=digest_state(directory),
        hosts=finished.hosts,
        lost_steps=log.lost_steps,
    )
    if len(finished.hosts) > 1:
        by_host = count_by_host(run, finished.hosts, result.processes, result.predicted, measured[0].backend)
        result = dataclasses.replace(result, by_host=by_host)
    if launch.traces and not result.compiled:
        from samestep.common.runtime.parent.chrome_trace import write_trace  # here: few runs are traced

        write_trace(directory, run, measured)
    write_json(directory / "result.json", result)
    with contextlib.suppress(OSError):  # there is a result; a file that cannot be removed only takes room
        (directory / "error.json").unlink(missing_ok=True)
        if run.described() == reference.described() and launch.needs_state:
            keep_curve(Curve(log, read_state(directory)), run, launch, curve_folder(run, launch, result.dataset_sha256))
        # The state may be many times as large as all other files; that of a run that missed parity is kept as evidence.
        if not launch.keep_state and parity.passed is not False:
            (directory / STATE).unlink(missing_ok=True)
        seal(directory)
    return result


def raise_if_missed(result: RunResult) -> None:
    """Raises the error with exit code 4 if a run missed parity.

    Raises:
        ParityFailed: The run was judged and did not take the same steps.
    """
    if result.parity.passed is False:
        from samestep.common.judging.conclusion import explain_missed  # here: most runs pass

        raise ParityFailed(explain_missed([result.name], result.parity.attribution))


def _read_log(directory: Path, measured: Measured) -> Log:
    """Reads the log and checks that its losses are the measured ones; a run that was only compiled has an empty log."""
    if measured.compiled:
        return Log(None, ())
    try:
        return check_losses(directory, measured.first_step, measured.losses) or read_log(directory)
    except ConfigError as error:
        raise WorkerFailed(str(error)) from None


def _judge(finished: Finished, reference: Run, measured: Measured, log: Log) -> Parity:
    """Judges a run against its reference, whose curve is read from the cache or computed now.

    With `--parity` the reference is taken to the last step, otherwise it may take as long as the run itself.
    """
    run, launch = finished.run, finished.launch
    if reason := why_not_judged(run, reference, launch.parity is not False):
        return not_judged(reason)
    budget_seconds = math.inf if launch.parity else finished.seconds
    ask, names = finished.ask, arrays_read(run)
    return judge_trial(
        Trial(
            run=run,
            reference=reference,
            seen=Curve(log, read_state(finished.directory, names=names)),
            wanted=reach_curve(reference, launch, measured, budget_seconds, finished.alone, names),
            start=functools.partial(_start, run, launch),
            in_own_names=None if run.workload.model.facts.counterpart is None else _naming(run),
            alone=finished.alone,
            rerun=finished.rerun,
            ask=None if ask is None or launch.start_from is not None else functools.partial(ask, launch),
        )
    )


def _start(run: Run, launch: Launch) -> "TrainState":
    from samestep.common.runtime.start import initial_state  # here, like the next import: most verdicts do not need it

    return initial_state(run, launch)


def _naming(run: Run) -> "Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]":
    """Returns a function that gives the parameters of a counterpart the names and layout of the run's own model."""
    from samestep.common.runtime.parent.models.weight_transfer import in_own_names

    return functools.partial(in_own_names, run)


@dataclasses.dataclass(frozen=True)
class LaunchedRerun:
    """Repeats steps of a run in new processes of a launcher.

    Attributes:
        execute: The launcher's `execute`.
        scratch: The folder for its directories.
        launch: How the judged run was started.
        environment: Variables to add to the environment of every process.
    """

    execute: Callable[..., None]
    scratch: str
    launch: Launch
    environment: dict[str, str]

    def steps(self, run: Run, start: "TrainState | None" = None) -> Curve:
        """Takes a run to its last step, as described in `common.judging.reference_run`.

        Args:
            run: The run.
            start: The state from which it continues, or its initial weights.
        """
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            directory, launch = Path(folder, "run"), self.launch.untraced
            is_first = start is not None and start.step == 0 and run.optimizer.rounding_move is None
            if start is not None and is_first:  # its optimizer makes its own state
                run = _with_first_weights(run, start, Path(folder, "model"))
            elif start is not None:
                launch = dataclasses.replace(launch, start_from=str(directory))
            open_run(directory, as_config(run, launch))
            if start is not None and not is_first:
                write_state(directory, start)
            self.execute(directory, run, launch, environment={**self.environment, UNEVALUATED: "1"})
            return read_curve(directory)


def _with_first_weights(run: Run, start: "TrainState", folder: Path) -> Run:
    """Returns the same run with a copy of its model that has other initial weights.

    Args:
        run: The run of a user's model.
        start: The state that has these weights and buffers.
        folder: The new folder of the copy.
    """
    from samestep.common.workload.models.description import INITIAL, write_initial  # here: our own models have none
    from samestep.common.workload.models.user_model import UserModelSpec

    described = run.workload.model.facts.folder
    assert described is not None
    shutil.copytree(described, folder)
    write_initial(folder / INITIAL, start.params, start.buffers)
    return dataclasses.replace(run, workload=dataclasses.replace(run.workload, model=UserModelSpec.of(str(folder))))
