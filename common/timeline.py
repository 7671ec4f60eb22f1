"""The timeline of a process in its traced steps: activities in lanes, which are the same in every framework."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

LANES = ("data", "compute", "communicate", "idle")
"""The lanes of one device. There are as many lanes for communication as transfers are in flight at once."""
PHASE_OF_LETTER = {
    "F": "forward",
    "B": "backward",
    "I": "backward for the inputs",
    "W": "backward for the weights",
}
"""The letter of a computation in schedules -> what a rank of a pipeline computes for a micro-batch."""
TRACED_STEPS = 5
GAP_NS = 100_000
"""The shortest gap in which a device counts as idle; in a shorter one, Python is at work between two operators."""


@dataclasses.dataclass(frozen=True)
class Activity:
    """Something that a device did during an interval.

    Attributes:
        device: Its place among the devices of the process.
        lane: One of `LANES`; the device is idle outside of all activities.
        name: A phase of the step, or the operation that sends; "" if the framework does not say which phase it was.
        start_ns: Like `end_ns`, as `time.time_ns()`.
        end_ns: When it ended. A transfer ends once its data have arrived, or are handed over.
        peer: The number in the group of the process to which a message goes or from which it comes.
        receives: Whether it is the receiving end of a message.
        stage: The stage of a pipeline.
        microbatch: The microbatch of a pipeline.
    """

    device: int
    lane: str
    name: str
    start_ns: int
    end_ns: int
    peer: int | None = None
    receives: bool = False
    stage: int | None = None
    microbatch: int | None = None


@dataclasses.dataclass(frozen=True)
class Recording:
    """The recording of one process in its traced steps.

    Attributes:
        steps: Their starts and ends, as `time.time_ns()`.
        activities: The activities, in any order.
    """

    steps: tuple[tuple[int, int], ...]
    activities: tuple[Activity, ...]


Record = Callable[[Callable[[], None], Sequence[str], Path | None], list[Activity]]
"""Takes steps under the profiler of a framework, and reads what each device computed and sent: `profiling.record` of each
mirror. The arguments are a function that takes the steps, the names of the devices, and the stem of the file for the
profile."""


def busy(activities: Sequence[Activity], start_ns: int, end_ns: int) -> list[Activity]:
    """Returns the activities in which a device computed or got data in a step, without overlaps and with short gaps closed.

    Args:
        activities: The activities of one device; sends, and everything outside of the step, are ignored.
        start_ns: When the step starts, in nanoseconds.
        end_ns: Its end.
    """
    found: list[Activity] = []
    backward_ns = max((each.end_ns for each in activities if each.name.startswith("backward")), default=end_ns)
    for unnamed in sorted(activities, key=lambda each: (each.start_ns, -each.end_ns)):
        name = unnamed.name or ("update" if unnamed.start_ns >= backward_ns else "forward")
        each = dataclasses.replace(unnamed, name=name)
        last = found[-1] if found else None
        start = max(each.start_ns, last.end_ns if last else start_ns)
        end = min(each.end_ns, end_ns)
        if each.lane == "communicate" or end <= start:
            continue
        if last and start - last.end_ns < GAP_NS:
            if _is_like(last, each):
                found[-1] = dataclasses.replace(last, end_ns=end)
                continue
            found[-1] = dataclasses.replace(last, end_ns=start)
        found.append(dataclasses.replace(each, start_ns=start, end_ns=end))
    return found


def _is_like(one: Activity, other: Activity) -> bool:
    return dataclasses.replace(one, start_ns=0, end_ns=0) == dataclasses.replace(other, start_ns=0, end_ns=0)


def idle(taken: Sequence[Activity], device: int, start_ns: int, end_ns: int) -> list[Activity]:
    """Returns the idle intervals of a step.

    Args:
        taken: The activities that `busy` returned.
        device: The place of the device.
        start_ns: When the step starts, in nanoseconds.
        end_ns: Its end.
    """
    starts, ends = [each.start_ns for each in taken], [each.end_ns for each in taken]
    gaps = zip([start_ns, *ends], [*starts, end_ns], strict=True)
    return [Activity(device, "idle", "idle", start, end) for start, end in gaps if end - start >= GAP_NS]
