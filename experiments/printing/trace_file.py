"""Reads `trace.json` of a run directory."""

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, read_json

TRACE = "trace.json"
_MOST_BYTES = 2**28


@dataclasses.dataclass(frozen=True)
class Span:
    """Something that a device did during an interval.

    Attributes:
        name: A phase, or the operation that sends.
        step: The number of the traced step.
        start: The start, in microseconds since the first of them began.
        end: The end, in microseconds since the first of them began.
        meeting: The text that all ends of a transfer share; "" if it is not known.
        ranks: The number of ranks in a collective; 0 for anything else.
        stage: The stage of a pipeline.
        microbatch: The micro-batch of a pipeline.
        bytes: The bytes that were sent.
    """

    name: str
    step: int
    start: float
    end: float
    meeting: str = ""
    ranks: int = 0
    stage: int | None = None
    microbatch: int | None = None
    bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Device:
    """One device of a trace.

    Attributes:
        name: The name of its process, and the device if the process has several.
        lanes: Lane -> its activities, in the order of the file.
    """

    name: str
    lanes: Mapping[str, Sequence[Span]]

    @property
    def flights(self) -> list[Sequence[Span]]:
        """The activities of each lane that communicates."""
        return [spans for lane, spans in self.lanes.items() if lane.startswith("communicate")]

    @property
    def transfers(self) -> list[Span]:
        """The activities of all lanes that communicate."""
        return list(itertools.chain(*self.flights))

    def overlap(self, step: int) -> tuple[float, float]:
        """Returns the same as `Trace.overlap` for one step of this device."""
        flights = _joined((span.start, span.end) for span in self.transfers if span.step == step)
        passes = [s for s in self.lanes["compute"] if s.step == step and s.name.startswith("backward")]
        backward = _joined((span.start, span.end) for span in passes)
        shared = [min(b, d) - max(a, c) for a, b in flights for c, d in backward]
        return sum(end - start for start, end in flights), sum(length for length in shared if length > 0)


def _joined(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the union of intervals, as intervals that do not touch."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


@dataclasses.dataclass(frozen=True)
class Trace:
    """The activities of all devices of a run in its traced steps.

    Attributes:
        devices: The devices, in order.
        arrows: The number of messages that are drawn from their start to their end.
    """

    devices: tuple[Device, ...]
    arrows: int

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps."""
        return sorted({span.step for device in self.devices for spans in device.lanes.values() for span in spans})

    def bounds(self, step: int) -> tuple[float, float]:
        """Returns when the first device begins a step and the last one ends it."""
        every = [s for device in self.devices for spans in device.lanes.values() for s in spans if s.step == step]
        return min(span.start for span in every), max(span.end for span in every)

    def fastest(self) -> int:
        """Returns the fastest step, which other work on the machine disturbed least."""
        return min(self.steps, key=lambda step: self.bounds(step)[1] - self.bounds(step)[0])

    def overlap(self) -> tuple[float, float]:
        """Returns how long a device has transfers in flight, and for how long of that time it computes the backward pass.

        Returns:
            Microseconds for each step: the mean over devices, in the median step.
        """
        totals = [
            tuple(statistics.fmean(column) for column in zip(*(d.overlap(step) for d in self.devices), strict=True))
            for step in self.steps
        ]
        flight, hidden = (statistics.median(column) for column in zip(*totals, strict=True))
        return flight, hidden


def load_trace(directory: Path) -> Trace | None:
    """Reads the trace of a run; None if it was not traced.

    Args:
        directory: The directory of the run.

    Raises:
        ConfigError: The file is not a trace of ours.
    """
    path = directory / TRACE
    if not path.exists():
        return None
    try:
        content = read_json(path, _MOST_BYTES)
        return _read(content["traceEvents"])  # pyrefly: ignore
    except (Unreadable, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is not a trace of a run: {error}; trace the run again.") from None


def _read(events: Sequence[dict]) -> Trace:
    names = {(e["pid"], e["tid"], e["name"]): str(e["args"]["name"]) for e in events if e["ph"] == "M"}
    pids = sorted({pid for pid, _, _ in names})
    if not pids:
        raise ValueError("it names no lane")
    found: dict[tuple[int, str], list[Span]] = {
        (pid, name): [] for (pid, _, kind), name in names.items() if kind == "thread_name"
    }
    for event in (event for event in events if event["ph"] == "X"):
        span = _span(event)
        found[event["pid"], names[event["pid"], event["tid"], "thread_name"]].append(span)
    devices = [
        Device(names[pid, 0, "process_name"], {lane: spans for (own, lane), spans in found.items() if own == pid})
        for pid in pids
    ]
    if lacking := [device.name for device in devices if "compute" not in device.lanes]:
        raise ValueError(f"it does not say what {lacking[0]} computed")
    if not any(found.values()):
        raise ValueError("it has no step")
    return Trace(tuple(devices), sum(event["ph"] == "s" for event in events))


def _span(event: dict) -> Span:
    start, args = float(event["ts"]), event["args"]
    is_collective = " to " not in args.get("meeting", "")
    return Span(
        name=str(event["name"]),
        step=int(args["step"]),
        start=start,
        end=start + float(event["dur"]),
        meeting=str(args.get("meeting", "")),
        ranks=int(args.get("ranks", 0)) if is_collective else 0,
        **{name: None if args.get(name) is None else int(args[name]) for name in ("stage", "microbatch", "bytes")},
    )
