"""The one training loop: the same code for every strategy of every framework, the oracle included."""

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from common.batch import Batch, batches
from common.config import RunConfig
from common.errors import ConfigError, Diverged
from common.evidence.metrics import METRICS
from common.runtime.records import ProcessRecord, read_state, write_state
from common.runtime.serving import usage
from common.runtime.traffic import Traffic
from common.strategy import Program, strategy_info
from common.workload.data.dataset import Split
from common.workload.table import Workload

TIMED_WINDOWS = 20


@dataclasses.dataclass
class Windows:
    """What the loop counts, window by window; the first window is the first step alone, and its bytes do not count."""

    steps: list[int] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)


def in_dtype(split: Split, dtype: str) -> Split:
    """The data set with its real numbers in the run's dtype; ids stay int64."""
    arrays = {field.name: getattr(split, field.name) for field in dataclasses.fields(split)}
    return Split(**{n: a.astype(dtype) if a.dtype.kind == "f" else a for n, a in arrays.items()})


def run(program: Program, workload: Workload, config: RunConfig, split: Split, record: ProcessRecord) -> dict[str, Any]:
    """Trains, evaluates and measures.

    Args:
        program: Just built.
        workload: What is trained.
        config: A checked configuration.
        split: The data set.
        record: The present process's; rank 0 also writes `metrics.jsonl` and `state.npz`.

    Returns:
        What the process measured, for `process-ROLE.json`.

    Raises:
        ConfigError: The batch is larger than the data set, or the state to start from lies beyond the last step.
        Diverged: The loss is not finite.
    """
    if (config.batch_size or 0) > len(split.train_inputs):
        raise ConfigError(
            f"global batch {config.batch_size} is more than the {len(split.train_inputs)} examples there are."
        )
    data = in_dtype(split, config.dtype)
    first = _restore(program, config)
    if record.rank == 0:
        (record.run / "metrics.jsonl").unlink(missing_ok=True)  # of an earlier attempt, where something restarts us
    stream = batches(data.train_inputs, data.train_targets, config.batch_size or 0, config.seed, first)
    specs = strategy_info(config.framework, config.strategy).topology(config)
    serving = {spec.role: rank for rank, spec in enumerate(specs) if spec.serves and record.rank == 0}
    traffic = Traffic(record, serving)
    windows = train(program, stream, first, config.steps or 0, record, traffic)
    record.enter("evaluate")
    metric = evaluate(program, workload, data, config.batch_size or 0, record)
    state = program.state()
    if record.rank == 0:
        write_state(record.run, state)
    record.enter("finish")
    # After everything that counts, since it moves the weights once more.
    exchanges = program.observe(next(stream))
    return {
        "first_step": first,
        "window_steps": windows.steps,
        "window_seconds": windows.seconds,
        "losses": windows.losses,
        "metric_value": metric,
        "exchanges": exchanges,
        "footprints": program.footprint(),
        "measures": dict(program.measures()),
        **traffic.own(),
        "served": traffic.served(),
        "peak_rss_bytes": usage()["peak_rss_bytes"],
        "dataset_sha256": split.sha256,
    }


def _restore(program: Program, config: RunConfig) -> int:
    if config.start_from is None:
        return 0
    state = read_state(Path(config.start_from))
    if state.step >= (config.steps or 0):
        raise ConfigError(
            f"--start-from {config.start_from} is at step {state.step}; --steps counts from zero, give more."
        )
    program.restore(state)
    return state.step


def train(
    program: Program, stream: Iterator[Batch], first: int, last: int, record: ProcessRecord, traffic: Traffic
) -> Windows:
    """Takes the steps from `first` up to `last`, in windows; reports nothing while a window's clock runs.

    Args:
        program: In training.
        stream: The batches from `first` on.
        first: The step to start at.
        last: The step to end before.
        record: The present process's.
        traffic: Counts what every window but the first sends.

    Raises:
        Diverged: The loss is not finite.
    """
    windows = Windows()
    sizes = [1, *_sizes(last - first - 1)]
    step = first
    record.enter("first step", step)
    program.sync()
    with (record.run / "metrics.jsonl").open("a", buffering=1) if record.rank == 0 else nullcontext() as metrics:
        for number, size in enumerate(sizes):
            if number == 1:
                record.enter("train", step)
            window = list(itertools.islice(stream, size))
            before = traffic.now()
            start = time.perf_counter()
            for batch in window:
                program.step(batch)
                record.beat(batch.step + 1)
            program.sync()
            seconds = time.perf_counter() - start
            if number > 0:
                traffic.count(before, traffic.now(), size)
            losses = program.losses()
            step += size
            windows.steps.append(size)
            windows.seconds.append(seconds)
            windows.losses += losses
            record.beat(step)
            if metrics is not None:
                metrics.write(json.dumps({"step": step, "seconds": seconds, "losses": losses}) + "\n")
                _check_finite(losses, step - size)
    return windows


def _sizes(steps: int) -> list[int]:
    count = min(TIMED_WINDOWS, steps)
    return [steps * (i + 1) // count - steps * i // count for i in range(count)]


def _check_finite(losses: list[float], first: int) -> None:
    for index, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise Diverged(f"the loss of step {first + index} is {loss}; try a smaller --learning-rate.")


def evaluate(program: Program, workload: Workload, data: Split, batch_size: int, record: ProcessRecord) -> float | None:
    """The workload's metric on the held-out examples, predicted in full global batches; NaN becomes None."""
    logits = []
    count = len(data.test_inputs)
    for start in range(0, count, batch_size):
        indices = np.arange(start, start + batch_size) % count
        logits.append(np.asarray(program.predict(data.test_inputs[indices])))
        record.beat(start)
    if record.rank != 0:
        return None
    value = METRICS[workload.metric].measure(np.concatenate(logits)[:count], data.test_targets)
    return value if math.isfinite(value) else None
