"""Traces that are made up."""

import json
from pathlib import Path

from samestep.experiments.printing.trace_file import TRACE


def lane(number: int, name: str) -> dict:
    return {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": name}}


def event(pid: int, tid: int, start: float, length: float, name: str = "forward", **args: object) -> dict:
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": start, "dur": length, "args": {"step": 0, **args}}


def written(folder: Path) -> list[dict]:
    """A trace without a fault: a message from the first device to the second, and a collective of both."""
    names = [{"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "rank-0"}}]
    names += [lane(tid, name) for tid, name in enumerate(("data", "compute", "communicate", "idle"))]
    events = [*names, *({**each, "pid": 1} for each in names)]
    both = {"meeting": "all_reduce of 0 1, 1", "ranks": 2, "bytes": 8}
    for pid, name in enumerate(("send", "receive")):
        events += [event(pid, 1, 0, 10), event(pid, 1, 10, 5, "backward")]
        events += [event(pid, 2, 10 + pid, 10, name, meeting="0 to 1, 1"), event(pid, 2, 30, 5, "all_reduce", **both)]
        events.append({"ph": "sf"[pid], "pid": pid, "tid": 2, "ts": 10, "id": 1, "name": "message"})
    save(folder, events)
    return events


def save(folder: Path, events: list[dict]) -> None:
    (folder / TRACE).write_text(json.dumps({"traceEvents": events}))
