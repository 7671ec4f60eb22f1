"""Reads the activities of a process from torch.profiler.

References:
    torch.profiler of torch 2.13. An operator of `c10d` lasts until the transfer is handed over or, if the call waits, until it
    is done. gloo's own event, named "gloo:...", is the transfer itself. The two together cover the time it was in flight.
"""

import bisect
import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torch.profiler import ProfilerActivity, profile, record_function

from samestep.common.files.silence import silenced
from samestep.common.files.writing import copy_file
from samestep.common.runtime.step_parts import AccountedSteps, StepParts
from samestep.common.timeline import PHASE_OF_LETTER, Activity
from samestep.torch_impl.observing.collectives import COLLECTIVES, is_transfer
from samestep.torch_impl.upstream import all_threads, kineto_events

_PASS = re.compile(r"samestep:(?P<stage>\d+)(?P<letter>[FBIW])(?P<microbatch>\d+)$")
"""The names that `named_pass` gives to passes."""
_RECORDING = threading.Event()
_BACKWARD, _UPDATE = "autograd::engine::evaluate_function", "Optimizer.step#"
_COMPILED = ("Torch-Compiled Region", "CompiledFunctionBackward")
_AUTOGRAD = ("autograd::", "torch::autograd::")
_RECEIVE = "c10d::recv_"
_SENDER = 2
"""The position of the sender among the arguments of a receive."""


class PhaseSpan(NamedTuple):
    """An interval in which a process was in one phase of a step.

    Attributes:
        start_ns: The start, as `time.time_ns()`.
        end_ns: The end, as `time.time_ns()`.
        name: The phase.
        stage: The stage, in a pipeline.
        microbatch: The number of the micro-batch, in a pipeline.
    """

    start_ns: int
    end_ns: int
    name: str
    stage: int | None = None
    microbatch: int | None = None


class Event(NamedTuple):
    """An event that the profiler recorded.

    Attributes:
        name: The name of an operator, or the name that Python code gave to a range.
        start_ns: The start, as `time.time_ns()`.
        end_ns: The end, as `time.time_ns()`.
        is_range: Whether it is a range of Python code, in which operators may have run.
        inputs: The numbers among the arguments of an operator, by position.
        thread: The number of the thread in the kernel.
    """

    name: str
    start_ns: int
    end_ns: int
    is_range: bool
    inputs: Sequence[object]
    thread: int = 0


def record(take: Callable[[], None], devices: Sequence[str], keep: Path | None) -> list[Activity]:
    """Takes steps under the profiler; see `Record`."""
    _RECORDING.set()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, experimental_config=all_threads()) as seen:
        take()
    _RECORDING.clear()
    if keep is not None:
        with tempfile.TemporaryDirectory() as folder:  # torch would follow a link
            seen.export_chrome_trace(f"{folder}/profile.json")
            copy_file(Path(folder, "profile.json"), keep.with_name(f"{keep.name}.json"))
    events = [Event(*each) for each in kineto_events(seen)]
    return [*_computed(events), *_transfers(events)]


def step_parts(take: Callable[[], AccountedSteps]) -> StepParts:
    """Takes steps and returns how their time divides into parts; see `SplitSteps`.

    The profiler costs a few percent of a short step, and records when each operator ran and on which thread.
    """
    seen = profile(activities=[ProfilerActivity.CPU], experimental_config=all_threads())
    with silenced():
        seen.__enter__()
    window = take()
    with silenced():
        seen.__exit__(None, None, None)
    events = [Event(*each) for each in kineto_events(seen) if each[1] < window.end_ns and each[2] > window.start_ns]
    frames = sorted((e.start_ns, e.end_ns) for e in events if e.name.startswith(_UPDATE))
    operators = [(e, _is_within(e.start_ns, frames)) for e in events if _is_operator(e)]
    ran = _union_seconds(window, [e for e, _ in operators])
    updating = _union_seconds(window, [e for e, is_update in operators if is_update]) if frames else None
    taking = _union_seconds(window, [e for e, _ in operators if e.thread == os.getpid()])
    return window.parts_by_operators(ran, updating, taking, {e.thread for e, _ in operators})


def _is_operator(event: Event) -> bool:
    """Returns whether an event is an operator or a compiled graph, rather than a transfer or a node of autograd around one."""
    if event.name.startswith(_COMPILED):
        return True
    is_named = "::" in event.name and not event.name.startswith(_AUTOGRAD)
    return is_named and not event.is_range and not _is_transfer(event.name)


def _is_within(moment: int, frames: Sequence[tuple[int, int]]) -> bool:
    place = bisect.bisect(frames, (moment, float("inf"))) - 1
    return place >= 0 and frames[place][1] > moment


def _union_seconds(window: AccountedSteps, events: Iterable[Event]) -> float:
    """Returns the seconds per step during which at least one of the events was running."""
    total, end = 0, window.start_ns
    for event in sorted(events, key=lambda each: each.start_ns):
        start, last = max(event.start_ns, end), min(event.end_ns, window.end_ns)
        if last > start:
            total, end = total + last - start, last
    return total / 1e9 / window.steps


def named_pass(letter: str, stage: int, microbatch: int) -> contextlib.AbstractContextManager[object]:
    """Returns a context that names a pass of a micro-batch in the profile; it costs nothing unless steps are recorded.

    Args:
        letter: The kind of the pass; see `PHASE_OF_LETTER`.
        stage: The index of the stage.
        microbatch: The number of the micro-batch.
    """
    if not _RECORDING.is_set():
        return contextlib.nullcontext()
    return record_function(f"samestep:{stage}{letter}{microbatch}")


def _is_transfer(name: str) -> bool:
    return is_transfer(name) or name.startswith(("gloo:", "nccl:"))


def _computed(events: Iterable[Event]) -> Iterator[Activity]:
    """Yields computation: operators, without the time in which they only wait for a transfer."""
    frames = _Frames(events)
    waits = sorted((e.start_ns, e.end_ns) for e in events if _is_transfer(e.name) and not e.name.startswith("gloo"))
    for event in events:
        if event.is_range or _is_transfer(event.name):
            continue
        frame = frames.at(event.start_ns)
        for start, end in _without(event.start_ns, event.end_ns, waits):
            yield Activity(0, "compute", frame.name, start, end, stage=frame.stage, microbatch=frame.microbatch)


def _without(start: int, end: int, waits: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the parts of an interval that lie outside all of some sorted intervals."""
    for wait_start, wait_end in waits[max(0, bisect.bisect(waits, (start,)) - 1) :]:
        if wait_start >= end:
            break
        if start < wait_start:
            yield start, wait_start
        start = max(start, wait_end)
    if start < end:
        yield start, end


class _Frames:
    """What the process is doing at a moment: a pass of a pipeline, else the update, else a backward pass, else unnamed."""

    def __init__(self, events: Iterable[Event]) -> None:
        passes, updates, backwards = [], [], []
        for event in events:
            if match := _PASS.match(event.name):
                stage, microbatch = int(match["stage"]), int(match["microbatch"])
                passes.append(
                    PhaseSpan(event.start_ns, event.end_ns, PHASE_OF_LETTER[match["letter"]], stage, microbatch)
                )
            elif event.name.startswith(_UPDATE):
                updates.append(PhaseSpan(event.start_ns, event.end_ns, "update"))
            elif event.name.startswith(_BACKWARD):
                backwards.append(PhaseSpan(event.start_ns, event.end_ns, "backward"))
        self._kinds = [sorted(kind) for kind in (passes, updates, backwards)]

    def at(self, moment: int) -> PhaseSpan:
        """Returns what the process is doing at a moment."""
        for frames in self._kinds:
            place = bisect.bisect(frames, (moment, float("inf"))) - 1
            if place >= 0 and frames[place].end_ns > moment:
                return frames[place]
        return PhaseSpan(moment, moment, "")


def _transfers(events: Sequence[Event]) -> Iterator[Activity]:
    """Yields a transfer for each operator; it lasts to the end of the first of gloo's events of its kind that is left."""
    left = sorted((e for e in events if e.name.startswith("gloo:")), key=lambda e: e.start_ns)
    calls = [e for e in events if e.name in COLLECTIVES or e.name == _RECEIVE]
    last_end = 0
    for call in sorted(calls, key=lambda e: e.start_ns):
        if call.start_ns < last_end:
            continue  # it lies within another transfer
        last_end = call.end_ns
        name, place = ("receive", _SENDER) if call.name == _RECEIVE else _name_and_peer(call.name)
        kind = {"send": "gloo:send", "receive": "gloo:recv"}.get(name, "")
        own = next((e for e in left if _is_of(e.name, kind) and e.end_ns > call.start_ns), None)
        if own is not None:
            left.remove(own)
        end = max(call.end_ns, own.end_ns if own else 0)
        peer = call.inputs[place] if kind and place is not None else None
        whom = peer if isinstance(peer, int) else None
        yield Activity(0, "communicate", name, call.start_ns, end, whom, receives=name == "receive")


def _name_and_peer(operator: str) -> tuple[str, int | None]:
    return COLLECTIVES[operator].operation, COLLECTIVES[operator].peer


def _is_of(event: str, kind: str) -> bool:
    return event == kind if kind else event not in ("gloo:send", "gloo:recv")
