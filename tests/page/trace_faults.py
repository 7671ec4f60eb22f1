"""Finds what is wrong with the trace of a run."""

import collections
import itertools
from collections.abc import Hashable, Iterator

from samestep.common.timeline import LANES
from samestep.experiments.printing.trace_file import Device, Span, Trace

_ROUNDING = 0.002
"""Of times in a file, in microseconds: sums of two that are exact to a nanosecond each."""


def faults(trace: Trace) -> list[str]:
    """What is wrong with a trace, a sentence each; nothing, if every lane is there, in order, and every send is received.

    Args:
        trace: Any.
    """
    return [*itertools.chain.from_iterable(map(_wrong_lanes, trace.devices)), *_unmet(trace)]


def _wrong_lanes(device: Device) -> Iterator[str]:
    plain = list(dict.fromkeys(lane.partition(" ")[0] for lane in device.lanes))
    if plain != list(LANES):
        yield f"{device.name} has the lanes {', '.join(device.lanes)}, not {', '.join(LANES)}."
    for lane, spans in device.lanes.items():
        for span in spans:
            if span.end < span.start:
                yield f"{device.name}, {lane}: {span.name} ends before it starts."
        for before, after in itertools.pairwise(spans):
            if after.start < before.start:
                yield f"{device.name}, {lane}: {after.name} at {after.start:.0f} us is not in order."
            elif after.start < before.end - _ROUNDING:
                yield f"{device.name}, {lane}: {after.name} at {after.start:.0f} us begins before {before.name} ends."


def _unmet(trace: Trace) -> Iterator[str]:
    """Messages without a receipt or the other way round, and collectives without one of their ranks."""
    ends: dict[Hashable, list[Span]] = collections.defaultdict(list)
    for device in trace.devices:
        for span in device.transfers:
            if not span.meeting:
                yield f"{device.name}: {span.name} at {span.start:.0f} us meets nothing."
            else:
                ends[span.step, span.meeting].append(span)
    messages = 0
    for met in ends.values():
        what = f"step {met[0].step}: {met[0].meeting}"
        if ranks := max(span.ranks for span in met):
            if len(met) != ranks:
                yield f"{what} is of {ranks} devices and has {len(met)} ends."
            continue
        messages += 1
        sent, received = ([span for span in met if (span.name == "receive") == kind] for kind in (False, True))
        if (len(sent), len(received)) != (1, 1):
            yield f"{what} is sent {len(sent)} times and received {len(received)} times."
        elif received[0].end < sent[0].start:
            yield f"{what} is received before it is sent."
    if messages != trace.arrows:
        yield f"there are {messages} messages and {trace.arrows} arrows."
