"""Showing that a run moves: a bar on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator

from samestep.common.runtime.parent.watch import Progress
from samestep.common.strategy import Run

_SECONDS_BETWEEN_LINES = 5.0


@contextlib.contextmanager
def show_progress(run: Run, label: str) -> Iterator[Progress]:
    """Shows the progress of one run on stderr while it lasts.

    Args:
        run: What is running.
        label: Its name.
    """
    if sys.stderr.isatty():
        with _bar(run, label) as progress:
            yield progress
    else:
        yield _lines(run, label)


@contextlib.contextmanager
def _bar(run: Run, label: str) -> Iterator[Progress]:
    from rich.console import Console  # here: only a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    layout = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"))
    with Bar(*layout, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=run.steps, loss="starting")
        yield lambda step, losses, seconds: bar.update(task, completed=step, loss=f"loss {losses[-1]:.4f}")


def _lines(run: Run, label: str) -> Progress:
    last = time.monotonic()

    def line(step: int, losses: list[float], seconds: float) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            rate = run.batch_size * len(losses) / seconds
            print(f"{label}: step {step}/{run.steps}, loss {losses[-1]:.4f}, {rate:,.0f} examples/s", file=sys.stderr)

    return line
