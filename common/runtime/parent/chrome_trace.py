"""`trace.json`: what all processes did in the traced steps, as a Chrome trace with the same lanes in every framework.

References:
    Trace Event Format (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): "X" is an activity, "M" a
    name, "s" and "f" are the ends of an arrow. Perfetto and chrome://tracing open it.
"""

import collections
import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from samestep.common.files.reading import read_json
from samestep.common.ledger import Send
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.measured import Measured, validate
from samestep.common.runtime.topology import trace_file
from samestep.common.strategy import Run
from samestep.common.timeline import LANES, Activity, Recording, busy, idle

TRACE = "trace.json"
_MOST_BYTES = 2**28
Event = dict[str, object]
"""One object of a Chrome trace."""


@dataclasses.dataclass(frozen=True)
class Transfer:
    """An activity, with what is known about its communication.

    Attributes:
        activity: When it took place.
        send: The send recorded for it in the observed step; None for a receipt, or if the recorded sends do not match.
        meeting: A text that is the same for all processes that take part; "" if that is not known.
    """

    activity: Activity
    send: Send | None
    meeting: str


def write_trace(directory: Path, run: Run, measured: Sequence[Measured]) -> None:
    """Joins the recordings of all processes in one trace, and removes their files.

    Args:
        directory: The run directory.
        run: What was traced.
        measured: The measurements of every process except servers, rank 0 first.
    """
    files = [trace_file(directory, each.role) for each in measured]
    found = [validate(Recording, read_json(file, _MOST_BYTES), str(file)) for file in files]
    write_json(directory / TRACE, {"displayTimeUnit": "ms", "traceEvents": chrome_events(run, measured, found)})
    for file in files:
        file.unlink()


def chrome_events(run: Run, measured: Sequence[Measured], found: Sequence[Recording]) -> list[Event]:
    """Returns the events of a trace: names first, then each lane from its start to its end.

    Args:
        run: What was traced.
        measured: The measurements of each process.
        found: The recorded activities of each process.
    """
    zero = min(start for each in found for start, _ in each.steps)
    axis = next((send.group for each in measured for send in each.sends if send.to), "all")
    events: list[Event] = []
    first = 0
    for own, recording in zip(measured, found, strict=True):
        by_device = collections.defaultdict(list)
        for activity in recording.activities:
            by_device[activity.device].append(activity)
        count = min(len(own.footprints), max(by_device, default=0) + 1)  # the threads of one device share its lanes
        for device in range(count):
            name = own.role if count == 1 else f"{own.role}, {own.footprints[device].device.rpartition('device:')[2]}"
            lanes = _lanes(run, own.sends, recording.steps, by_device[device], (first + device, device), axis)
            events += _device_events(first + device, name, lanes, zero)
        first += len(own.footprints)
    return sorted([*events, *_arrows(events)], key=_order)


def _order(event: Event) -> tuple[object, ...]:
    return event["ph"] != "M", event["pid"], event["tid"], event.get("ts", 0.0)


def _lanes(
    run: Run,
    sends: Sequence[Send],
    steps: Sequence[tuple[int, int]],
    activities: Sequence[Activity],
    places: tuple[int, int],
    axis: str,
) -> Iterator[tuple[int, str, Transfer]]:
    """Yields the step, the lane and the content of everything that a device did."""
    place, device = places
    free: list[int] = []  # over all steps: under load, a transfer may outlast the step that it began in
    for number, (start, end) in enumerate(steps):
        inside = [each for each in activities if start <= each.start_ns < end]
        taken = busy([each for each in activities if each.start_ns < end and each.end_ns > start], start, end)
        for each in (*taken, *idle(taken, device, start, end)):
            yield number, each.lane, Transfer(each, None, "")
        moved = [each for each in inside if each.lane == "communicate"]
        for each in sorted(_met(run, sends, moved, place, axis), key=lambda each: each.activity.start_ns):
            lane = next((n for n, until in enumerate(free) if until <= each.activity.start_ns), len(free))
            free[lane : lane + 1] = [each.activity.end_ns]
            yield number, "communicate" + (f" {lane + 1}" if lane else ""), each


def _met(run: Run, sends: Sequence[Send], moved: Sequence[Activity], place: int, axis: str) -> Iterator[Transfer]:
    """Matches the transfers of a step with the sends of the observed step, which were recorded in the same order."""
    expanded = [
        dataclasses.replace(s, bytes=s.bytes // s.count, count=1)
        for s in sends
        for _ in range(min(s.count, len(moved)))
    ]
    known = iter(expanded if len(expanded) == sum(not each.receives for each in moved) else ())
    seen: collections.Counter[Hashable] = collections.Counter()
    for each in moved:
        send = None if each.receives else next(known, None)
        if each.receives and each.peer is not None:
            group = run.mesh.members(axis, run.mesh.axis(axis) if axis != "all" else run.num_devices, place)
            between = f"{group[each.peer]} to {place}"
        elif send is not None and send.to:
            between = f"{place} to {send.to}"
        elif send is not None:
            between = f"{send.operation} of " + " ".join(map(str, run.mesh.members(send.group, send.ranks, place)))
        else:
            yield Transfer(each, None, "")
            continue
        seen[between] += 1
        yield Transfer(each, send, f"{between}, {seen[between]}")


def _device_events(pid: int, name: str, lanes: Iterable[tuple[int, str, Transfer]], zero: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
    every = list(lanes)
    extra = sorted({lane for _, lane, _ in every} - set(LANES))
    order = [*LANES[:-1], *extra, LANES[-1]]
    for tid, lane in enumerate(order):
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": lane}}
    for step, lane, each in every:
        yield {
            "ph": "X",
            "pid": pid,
            "tid": order.index(lane),
            "name": each.activity.name,
            "cat": lane.partition(" ")[0],
            "ts": (each.activity.start_ns - zero) / 1000,
            "dur": (each.activity.end_ns - each.activity.start_ns) / 1000,
            "args": {"step": step, **_details(each)},
        }


def _details(each: Transfer) -> Event:
    activity, send = each.activity, each.send
    found: Event = {"stage": activity.stage, "microbatch": activity.microbatch, "meeting": each.meeting or None}
    if send is not None:
        found |= {"bytes": send.bytes, "group": send.group, "ranks": send.ranks}
    return {name: value for name, value in found.items() if value is not None}


def _arrows(events: Iterable[Event]) -> Iterator[Event]:
    """Yields both ends of an arrow from each message to its receipt."""
    ends: dict[Hashable, dict[bool, Event]] = collections.defaultdict(dict)
    for event in events:
        args = event["args"]
        if isinstance(args, dict) and " to " in str(args.get("meeting")):
            ends[args["step"], args["meeting"]][event["name"] == "receive"] = event
    for number, both in zip(itertools.count(1), (each for each in ends.values() if len(each) == 2)):
        for is_receipt, event in both.items():
            shared = {name: event[name] for name in ("pid", "tid", "cat", "ts")} | {"name": "message", "id": number}
            if is_receipt:
                shared["ts"] = float(str(event["ts"])) + float(str(event["dur"]))
            yield shared | ({"ph": "f", "bp": "e"} if is_receipt else {"ph": "s"})
