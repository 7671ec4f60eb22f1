"""The training loop: the same code for every strategy of every framework, including the oracle."""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from samestep.common.batch import Batch, batches, digest_order
from samestep.common.flags import FieldValues
from samestep.common.ledger import Footprint
from samestep.common.program import Program
from samestep.common.request import Launch
from samestep.common.runtime.checkpoints.resuming import Beginning, find_beginning, restore, saver_of
from samestep.common.runtime.checkpoints.saving import Saver
from samestep.common.runtime.measured import Measured, Saves, Usage, Watched
from samestep.common.runtime.process_file import EVALUATE, TRAIN, ProcessFile
from samestep.common.runtime.state_file import write_state
from samestep.common.runtime.worker.disturbances import Disturbances, watch_for
from samestep.common.runtime.worker.evaluation import evaluate
from samestep.common.runtime.worker.step_log import RunLog
from samestep.common.runtime.worker.traced_steps import measure_parts, trace
from samestep.common.runtime.worker.traffic import Traffic
from samestep.common.runtime.worker.windows import Windows
from samestep.common.strategy import Run
from samestep.common.techniques.used import first_steady_step, used
from samestep.common.workload.data.casting import in_dtype
from samestep.common.workload.data.dataset import Split

TIMED_WINDOWS = 20
Batches = Iterator[Batch]
MOST_STEPS, MOST_SECONDS = 1000, 2.0
"""The most steps and seconds of a part. A longer window is run in parts; after each part, losses are checked and reported."""


def train_and_measure(program: Program, run: Run, launch: Launch, split: Split, file: ProcessFile) -> Measured:
    """Trains, evaluates and measures.

    Args:
        program: The program, just built.
        run: What is trained, and how.
        launch: How it was started.
        split: The data set.
        file: The file of the current process; rank 0 also writes `metrics.jsonl` and `state.npz`.

    Raises:
        ConfigError: The run cannot continue from the state that it should start from.
        Diverged: The loss is not finite.
    """
    data = in_dtype(split, run.dtype)
    beginning, stream = _begin(program, run, launch, data, file)
    disturbances, specs = watch_for(run, file), run.strategy.topology(run)
    serving = {spec.role: rank for rank, spec in enumerate(specs) if spec.serves and file.rank == 0}
    traffic = Traffic(file, serving, disturbances, alone=len(specs) == 1 and program.hardware.backend == "memory")
    if saver := saver_of(run, launch, beginning, file):
        stream = saver.follow(stream)
    with RunLog(file.directory, run, launch, split) if file.rank == 0 else nullcontext() as log, saver or nullcontext():
        windows = train(program, run, stream, beginning.step, file, traffic, log, saver)
    file.enter(EVALUATE)
    metric = evaluate(program, run, launch, data, file)
    if launch.needs_state:
        state = program.state()
        if file.rank == 0:
            write_state(file.directory, state)
    file.enter("finish")
    if launch.traces:
        trace(program, run, stream, launch, file)
    own, served = _observe(program, run, stream, traffic)
    found = Measured(
        **dataclasses.asdict(own),
        first_step=beginning.begun,
        resumed_at=None if beginning.checkpoint is None else beginning.step,
        saves=saver.saves if saver else Saves(),
        window_steps=tuple(windows.steps),
        window_seconds=tuple(windows.seconds),
        step_times=windows.awaited_step_times,
        losses=(*beginning.losses, *windows.losses) if file.rank == 0 else (),  # those of all ranks are the same
        metric_value=metric,
        sends=program.sends(),
        footprints=program.footprint(),
        measures=dict(program.measures()),
        served=served,
        dataset_sha256=split.sha256,
        device_note=program.hardware.note,
        backend=program.hardware.backend,
        emulation="; ".join(filter(None, (program.hardware.emulation, _emulated(run, program)))),
        watched=_watched(disturbances, run, len(data.train_inputs), beginning.begun),
    )
    return dataclasses.replace(found, attempt=beginning.attempt, **_find_parts(program, run, stream, found, file))


def _begin(program: Program, run: Run, launch: Launch, data: Split, file: ProcessFile) -> tuple[Beginning, Batches]:
    """Restores the program to where this attempt begins; returns the beginning, and the batches from there on."""
    beginning = find_beginning(file.directory, run, launch)
    if beginning.state is not None:  # `restore` takes a step first, which may be traced or compiled
        file.enter("first step", beginning.step)
    asked = (data.train_inputs, data.train_targets, run.batch_size, run.seed, beginning.step)
    restore(program, beginning, run, next(batches(*asked)))
    return beginning, batches(*asked)


def _observe(program: Program, run: Run, stream: Batches, traffic: Traffic) -> tuple[Usage, tuple[Usage, ...]]:
    """Takes the observed step; returns the usage of this process, and of the processes that serve it.

    It comes after everything that counts, because it changes the weights once more. It is the last step of a period, the one
    that exchanges.

    Args:
        program: The trained program.
        run: What is trained.
        stream: The batches that come next.
        traffic: Counts what is used.
    """
    batch = next(stream)
    while (batch.step + 1) % run.techniques.steps_of_period:
        program.step(batch)
        batch = next(stream)
    program.agree(0.0)  # all begin together, or waiting would count
    with traffic.observed():
        program.observe(batch)
        program.sync()
    footprints = program.footprint()
    threads = run.threads if _is_on_cpus(footprints) else None
    served = traffic.served(threads)
    return traffic.own(threads and threads * (1 if served else len(footprints))), served


def _find_parts(program: Program, run: Run, stream: Batches, found: Measured, file: ProcessFile) -> FieldValues:
    """Finds how the seconds of a step are spent, once everything else is measured; or why that cannot be found."""
    specs = run.strategy.topology(run)
    if not _is_on_cpus(found.footprints):
        return {"no_parts": "this is known for CPU cores only; a GPU computes while its process does something else"}
    if len(specs) > 1 and sum(not spec.serves for spec in specs) == 1:
        return {"no_parts": "the processes that compute only serve the one that takes the steps"}
    timed = slice(1 if len(found.window_steps) > 1 else 0, None)
    seconds = sum(found.window_seconds[timed]) / sum(found.window_steps[timed])
    devices = run.threads * len(found.footprints)
    return {"step_parts": measure_parts(program, run, stream, seconds, devices, file)}


def _is_on_cpus(footprints: Sequence[Footprint]) -> bool:
    return all("cpu" in row.device.lower() for row in footprints)


def _watched(disturbances: Disturbances, run: Run, examples: int, first: int) -> Watched:
    """Returns what was watched, with the order of the examples from the first step on."""
    return dataclasses.replace(
        disturbances.watched, order_sha256=digest_order(examples, run.batch_size, run.seed, first)
    )


def _emulated(run: Run, program: Program) -> str:
    """Returns what CPU cores compute in place of other hardware, in the words of the techniques; "" on other hardware."""
    if not _is_on_cpus(program.footprint()):
        return ""
    return "; ".join(
        filter(None, (each.emulation_on_cpus(run) for each in used(run.techniques) if each.emulation_on_cpus))
    )


def train(
    program: Program,
    run: Run,
    stream: Batches,
    first: int,
    file: ProcessFile,
    traffic: Traffic,
    log: RunLog | None = None,
    saver: Saver | None = None,
) -> Windows:
    """Takes the steps from `first` to the run's last, in windows; reports nothing while the clock runs.

    Args:
        program: The program in training.
        run: What is trained.
        stream: The batches from `first` on.
        first: The step to start at.
        file: The file of the current process.
        traffic: Counts what every window but the first sends, or the first one if it is the whole run.
        log: Gets every window; None if no log is kept, as on any rank but 0.
        saver: Saves checkpoints between parts, while no clock runs; None if none are saved.

    Raises:
        Diverged: The loss is not finite.
    """
    windows = Windows()
    step, most = first, 1
    file.enter("first step", step)
    program.sync()
    separate = _num_apart(run, first)
    later = run.steps - first - separate
    for number, size in enumerate([separate, *_sizes(later, run.techniques.steps_of_period)]):
        if number == 1:  # the last step before may be traced or compiled, as the first one is
            file.enter(TRAIN, step)
        windows.open()
        traffic.open(counts=number > 0 or not later)
        while (left := size - windows.steps[-1]) > 0:
            part = list(itertools.islice(stream, min(most, left, saver.steps_left(step) if saver else left)))
            ticks = _take(program, part, file, traffic)
            seconds, losses = ticks[-1] - ticks[0], program.losses()
            most = max(1, min(MOST_STEPS, int(MOST_SECONDS * len(part) / program.agree(seconds))))
            windows.add(seconds, len(part), losses)
            if number > 0:
                windows.time_steps(ticks)
            step += len(part)
            file.beat(step)
            if log is not None:
                log.add(part, seconds, losses)
            if saver:
                saver.offer(program, step, losses)
    return windows


def _take(program: Program, part: Sequence[Batch], file: ProcessFile, traffic: Traffic) -> list[float]:
    """Takes some steps; returns when they began, when the call of each returned, and when all were done."""
    before = traffic.read()
    ticks = [time.perf_counter()]
    for batch in part:
        program.step(batch)
        ticks.append(time.perf_counter())
        file.beat(batch.step + 1)
    program.sync()
    ticks.append(time.perf_counter())
    traffic.add(before, traffic.read(), len(part))
    return ticks


def _num_apart(run: Run, first: int) -> int:
    """Returns the size of the first window: whole periods up to the first step that exchanges as later ones do, at least one."""
    count = 1 + max(0, first_steady_step(run.techniques) - first)
    return min(run.steps - first, count + -(first + count) % run.techniques.steps_of_period)


def _sizes(steps: int, period_steps: int) -> list[int]:
    """Cuts steps into windows of whole periods; the last period may be cut short."""
    periods = -(-steps // period_steps)
    count = min(TIMED_WINDOWS, periods)
    ends = [min(steps, periods * i // count * period_steps) for i in range(count + 1)] if count else []
    return [end - begin for begin, end in itertools.pairwise(ends)]
