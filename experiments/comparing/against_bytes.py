"""Compares what the devices of a row hold and send with what they held and sent earlier."""

from collections.abc import Sequence

from samestep.common import memory
from samestep.common.ledger import Footprint
from samestep.common.runtime.records import RunResult
from samestep.experiments.printing.text import size

SENT_TOLERANCE = 0.01
"""Bytes on the wire are counted by the kernel: what a backend adds to the tensors may vary this much."""


def changed_bytes(now: RunResult, then: RunResult) -> list[str]:
    """Finds in what the bytes of two runs of one request differ, as clauses.

    Args:
        now: Today's run.
        then: The earlier run.
    """
    changed = [_of_class(each, now.processes, then.processes) for each in memory.STORED]
    mine, theirs = ({each.name: each for each in run.exchanges} for run in (now, then))
    for name in dict.fromkeys([*mine, *theirs]):
        one, two = mine.get(name), theirs.get(name)
        if one != two:
            one_said, two_said = (
                f"{each.count_per_step} x {name} of {size(each.bytes_per_step)}" if each else f"no {name}"
                for each in (one, two)
            )
            changed.append(f"a step has {one_said} and had {two_said}")
    sent, was_sent = now.sent_bytes, then.sent_bytes
    if abs(sent - was_sent) > SENT_TOLERANCE * max(sent, was_sent):
        changed.append(f"{size(sent)} on the wire, and were {size(was_sent)}")
    return [each for each in changed if each]


def _of_class(of: memory.MemoryClass, now: Sequence[Footprint], then: Sequence[Footprint]) -> str:
    mine, theirs = ([of.bytes_of(row) for row in rows] for rows in (now, then))
    if mine == theirs:
        return ""
    if len(mine) != len(theirs):
        return f"{of.name} on {len(mine)} devices, and were on {len(theirs)}"
    device, (one, two) = max(enumerate(zip(mine, theirs, strict=True)), key=lambda each: abs(each[1][0] - each[1][1]))
    return f"{of.name}: {size(one)} on device {device}, and were {size(two)}"
