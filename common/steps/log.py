"""The log of a program's steps: one record of what it did, written by our loop and the reference and read by every judge.

A log is `metrics.jsonl`, with a line for each window of steps. It only grows: each line is written whole, so a process that is
killed loses at most the line that it was writing, and another attempt at the same run appends to the log. The first line of an
attempt also holds the header, which describes the program.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, parse_json, read_bytes

METRICS = "metrics.jsonl"
METRICS_BYTES = 2**30
"""The largest size of this file, and of a result. A step takes some 80 bytes, so a million steps are 80 MB."""


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """A parameter of the program.

    Attributes:
        name: The neutral name of the parameter.
        shape: The shape of the whole parameter, even if the run splits it.
        dtype: The dtype in which it is trained.
        role: What the model uses it for, such as "kernel".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str


@dataclasses.dataclass(frozen=True)
class Header:
    """The program that a log belongs to.

    Attributes:
        program: Everything that affects the numbers, as plain values.
        versions: The versions of Python and the packages that decide numbers.
        tensors: The parameters, in order.
    """

    program: Mapping[str, object]
    versions: Mapping[str, str]
    tensors: tuple[TensorInfo, ...]


@dataclasses.dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        number: The number of the step, counted from 0 at the start of training, across attempts and continued runs.
        loss: The GLOBAL mean loss.
        batch: The digest of the step's examples; None if it was not computed.
    """

    number: int
    loss: float
    batch: int | None


@dataclasses.dataclass(frozen=True)
class Window:
    """Steps that were taken and reported together: a line of the log.

    Attributes:
        step: The number of steps taken at its end.
        seconds: The duration of the steps.
        losses: The loss of each step.
        attempt: The attempt at the run that took the steps.
        batches: The digest of each batch; empty if they were not computed.
        scalars: Name -> the number of each step.
    """

    step: int
    seconds: float
    losses: tuple[float, ...]
    attempt: int = 1
    batches: tuple[int, ...] = ()
    scalars: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)

    @property
    def first(self) -> int:
        """The number of its first step."""
        return self.step - len(self.losses)

    def steps(self) -> Iterator[Step]:
        """Yields its steps, one by one."""
        for index, loss in enumerate(self.losses):
            yield Step(self.first + index, loss, self.batches[index] if self.batches else None)

    def until(self, step: int) -> "Window":
        """Returns a window with the steps before a given one and their share of the seconds, which is equal for all steps."""
        count = step - self.first
        return dataclasses.replace(
            self,
            step=step,
            seconds=self.seconds * count / len(self.losses),
            losses=self.losses[:count],
            batches=self.batches[:count],
            scalars={name: values[:count] for name, values in self.scalars.items()},
        )


@dataclasses.dataclass(frozen=True)
class Log:
    """The steps of a run. Steps that a later attempt repeated replace those of an earlier one.

    Attributes:
        header: The header of the latest attempt; None in logs of earlier versions.
        windows: The windows, without gaps.
        lost_steps: The number of steps that a later attempt replaced.
    """

    header: Header | None
    windows: tuple[Window, ...]
    lost_steps: int = 0

    @property
    def first(self) -> int:
        """The number of the first step."""
        return self.windows[0].first if self.windows else 0

    @property
    def attempt(self) -> int:
        """The number of the latest attempt that took steps; 0 if none did."""
        return self.windows[-1].attempt if self.windows else 0

    @property
    def losses(self) -> tuple[float, ...]:
        """The losses, one for each step."""
        return tuple(itertools.chain.from_iterable(window.losses for window in self.windows))

    @property
    def seconds(self) -> float:
        """The total duration of the steps in seconds."""
        return sum(window.seconds for window in self.windows)

    def steps(self) -> Iterator[Step]:
        """Yields all steps in order."""
        return itertools.chain.from_iterable(window.steps() for window in self.windows)


def read_log(directory: Path) -> Log:
    """Reads the log in a directory. An incomplete last line is left out.

    Raises:
        ConfigError: The file is missing, or damaged; the message names the line.
    """
    path, header, windows, taken = directory / METRICS, None, [], 0
    try:
        *lines, last = read_bytes(path, METRICS_BYTES).split(b"\n")
        for number, line in enumerate([*lines, *([last] if last.endswith(b"}") else [])], 1):
            place, values = f"line {number}", parse_json(line)
            window = _window(values, place)
            windows, taken = _continued(windows, window, place), taken + len(window.losses)
            header = _header(values, place) or header
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}; the losses in it are lost.") from None
    return Log(header, tuple(windows), taken - sum(len(window.losses) for window in windows))


def line_of(window: Window, header: Header | None = None) -> dict[str, object]:
    """Makes the JSON object of a line. Digests are written as text, since most JSON readers round 64-bit numbers.

    Args:
        window: The steps of the line.
        header: The header of the log, for the first line of an attempt.
    """
    line: dict[str, object] = {} if header is None else {"header": dataclasses.asdict(header)}
    line |= {"step": window.step, "attempt": window.attempt, "seconds": window.seconds, "losses": window.losses}
    line |= {"batches": [f"{digest:016x}" for digest in window.batches]} if window.batches else {}
    return line | {f"{name}s": values for name, values in window.scalars.items()}


def _continued(windows: list[Window], window: Window, place: str) -> list[Window]:
    """Adds a window that starts where the last one ends, or that begins a later attempt."""
    if not windows or (window.attempt, window.first) == (windows[-1].attempt, windows[-1].step):
        windows.append(window)
        return windows
    if window.attempt <= windows[-1].attempt or not windows[0].first <= window.first <= windows[-1].step:
        raise Unreadable(f"{place} does not continue where the one before ends")
    kept = [each.until(min(each.step, window.first)) for each in windows if each.first < window.first]
    return [*kept, window]


def _window(values: object, place: str) -> Window:
    """Makes the window that a line describes."""
    try:
        step, seconds, losses = (values[name] for name in ("step", "seconds", "losses"))  # pyrefly: ignore
        attempt, batches = values.get("attempt", 1), [int(text, 16) for text in values.get("batches", ())]  # pyrefly: ignore
        scalars = {name: values[name] for name in values if name not in _OWN}  # pyrefly: ignore
        values_of_steps = (seconds, *losses, *itertools.chain(*scalars.values()))
        numbers = all(type(each) in (int, float) and math.isfinite(each) for each in values_of_steps)
        lengths = {len(losses), *map(len, scalars.values()), *([len(batches)] if batches else ())}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise Unreadable(f"{place} is not what a run writes") from None
    if type(step) is not int or type(attempt) is not int or not numbers or seconds < 0:
        raise Unreadable(f"{place} holds something other than finite numbers")
    if not losses or step - len(losses) < 0 or len(lengths) > 1:
        raise Unreadable(f"{place} does not have a loss for each of its steps")
    each = {name.removesuffix("s"): tuple(numbers) for name, numbers in scalars.items()}
    return Window(step, seconds, tuple(losses), attempt, tuple(batches), each)


_OWN = ("header", "step", "attempt", "seconds", "losses", "batches")
"""The fields of a line that are not scalars."""


def _header(values: object, place: str) -> Header | None:
    """Makes the header of a line; returns None if the line has none."""
    if (header := values.get("header")) is None:  # pyrefly: ignore
        return None
    try:
        tensors = tuple(
            TensorInfo(each["name"], tuple(each["shape"]), each["dtype"], each["role"]) for each in header["tensors"]
        )
        return Header(header["program"], header["versions"], tensors)
    except (KeyError, TypeError):
        raise Unreadable(f"{place} has a header that no run writes") from None
