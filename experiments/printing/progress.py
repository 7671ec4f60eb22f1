"""Shows the progress of runs and when they will be done: one bar on a terminal, plain lines elsewhere."""

import contextlib
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.strategy import Run
from samestep.experiments.cli.ending import drawing_stream

_SECONDS_BETWEEN_LINES = 5.0
_BAR_WIDTH = 20
_TELLING_SHARE = 0.1
"""The share of the steps after which a run's remaining time is estimated; the first steps compile and connect."""
Begin = Callable[[Run, str], Progress]
"""A function that is called with a run that begins and its name; it returns the function to call at the end of each window."""


@dataclasses.dataclass
class Timetable:
    """The remaining runs, and how long they will take.

    Attributes:
        todo: The cells of the remaining runs, in order; the first one runs now, or comes next.
        took: Cell -> the seconds of its finished runs.
    """

    todo: list[str]
    took: dict[str, list[float]]

    def __post_init__(self) -> None:
        self.total = len(self.todo)
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """The number of runs that are done."""
        return self.total - len(self.todo)

    def finish(self, seconds: float | None = None) -> None:
        """Moves on to the next run.

        Args:
            seconds: The seconds that the current run took; None if it was not run after all.
        """
        self.took.setdefault(self.todo.pop(0), []).extend([] if seconds is None else [seconds])
        self._began = time.monotonic()

    def left_seconds(self, share: float = 0.0) -> float | None:
        """Returns how long the rest will take; None if that is not known yet.

        A run is expected to take as long as earlier runs of its cell, or else as those of other cells, or else in proportion
        to its own first part.

        Args:
            share: The share of the current run's steps that are done.
        """
        if not self.todo:
            return 0.0
        gone = time.monotonic() - self._began
        means = {cell: statistics.mean(seconds) for cell, seconds in self.took.items() if seconds}
        if not means and share < _TELLING_SHARE:
            return None
        usual = statistics.mean(means.values()) if means else gone / share
        present, *others = (means.get(cell, usual) for cell in self.todo)
        return max(0.0, present - gone) + sum(others)

    def describe(self, share: float = 0.0) -> str:
        """Returns how far the runs are, in words.

        Args:
            share: As in `left_seconds`.
        """
        left = self.left_seconds(share)
        counted = [f"{self.done} of {self.total} runs"] if self.total > 1 else []
        return ", ".join([*counted, *([f"about {spell_seconds(left)} left"] if left else [])])


def spell_seconds(seconds: float) -> str:
    """Returns a time for people: 40 s, 3 min, 2 h 5 min."""
    if round(seconds) < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextlib.contextmanager
def show_progress(run: Run, label: str) -> Iterator[Progress]:
    """Shows the progress of one run on stderr while it lasts.

    Args:
        run: The run.
        label: Its name.
    """
    with show_runs(Timetable([label], {})) as begin:
        yield begin(run, label)


@contextlib.contextmanager
def show_runs(timetable: Timetable) -> Iterator[Begin]:
    """Shows the progress of runs, one after the other, on stderr while they last.

    Args:
        timetable: The timetable of the runs, which its owner updates.
    """
    if sys.stderr.isatty():
        with _bar(timetable) as begin:
            yield begin
    else:
        yield _lines


@contextlib.contextmanager
def _bar(timetable: Timetable) -> Iterator[Begin]:
    """Shows one bar for all runs; each step moves it."""
    from rich.console import Console  # here: only a terminal needs it
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(file=drawing_stream())
    layout = (BarColumn(_BAR_WIDTH), TextColumn("{task.description}", markup=False))
    with Bar(*layout, console=console, transient=True) as bar:
        task = bar.add_task("", total=timetable.total)

        def show(label: str, share: float, what: str) -> None:
            said = "; ".join(filter(None, (timetable.describe(share), f"{label}: {what}")))
            room = max(0, console.width - _BAR_WIDTH - 1)  # longer text would shrink the bar
            bar.update(task, description=said[:room], completed=timetable.done + share)

        def begin(run: Run, label: str) -> Progress:
            show(label, 0.0, "starting")
            return lambda step, losses, seconds: (
                show(label, step / run.steps, f"step {step}, loss {losses[-1]:.4f}")
                if losses
                else show(label, 1.0, _evaluated(step))
            )

        yield begin


def _evaluated(examples: int) -> str:
    return f"evaluated on {examples:,} held-out examples so far"


def _lines(run: Run, label: str) -> Progress:
    last = time.monotonic()

    def line(step: int, losses: list[float], seconds: float) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            if not losses:
                print(f"{label}: {_evaluated(step)}", file=sys.stderr)
                return
            rate = run.batch_size * len(losses) / seconds
            print(f"{label}: step {step}/{run.steps}, loss {losses[-1]:.4f}, {rate:,.0f} examples/s", file=sys.stderr)

    return line
