"""The changes in a row since an earlier run of its request: what its devices hold and send, and the bits of its steps.

The same bits can be expected with the same versions on the same kind of machine.
"""

from collections.abc import Iterator, Sequence

from samestep.common import memory
from samestep.common.judging.repetition import EQUAL, compare_losses
from samestep.common.ledger import Footprint
from samestep.common.runtime.records import RunResult
from samestep.experiments.printing.text import size

SENT_TOLERANCE = 0.01
"""The relative change of the bytes on the wire that does not count; the kernel counts them, and a backend's framing varies."""
_OURS = ("samestep",)
"""Packages whose version does not excuse different bits, since the gate is meant to find changes of samestep itself."""


def changed_bytes(now: RunResult, then: RunResult) -> list[str]:
    """Returns how the bytes of two runs of one request differ, one clause for each difference.

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


def why_other_bits(now: Sequence[RunResult], then: Sequence[RunResult]) -> str:
    """Returns why the bits of a row may differ although its step is the same; "" if they have to be equal.

    Args:
        now: Today's rounds.
        then: The earlier rounds.
    """
    mine, theirs = _facts(now[0]), _facts(then[0])
    pairs = {name: (mine.get(name), theirs.get(name)) for name in {**mine, **theirs}}
    if differing := [f"{name} {a or 'none'} and {b or 'none'}" for name, (a, b) in pairs.items() if a != b]:
        return ", ".join(differing)
    has_several = any(differing_bits([each], then[:1]) for each in then[1:])
    return "the earlier rounds are not bit-equal among themselves" if has_several else ""


def differing_bits(now: Sequence[RunResult], then: Sequence[RunResult]) -> str:
    """Returns what differs in the bits of a row's steps, as a clause: the first loss, or the final state; "" if nothing.

    Args:
        now: Today's rounds, each of which is compared with every earlier one.
        then: The earlier rounds.
    """
    return next((said for one in now for two in then for said in _apart(one, two)), "")


def _apart(one: RunResult, two: RunResult) -> Iterator[str]:
    found = compare_losses(one.dtype, one.first_step, one.losses, two.losses)
    if found.verdict != EQUAL:
        far = "" if found.deviation is None else f", relative deviation {found.deviation:.1e}"
        yield f"the loss of step {found.step} is {found.now!r} and was {found.then!r}: not bit-equal{far}"
    elif (
        one.steps == two.steps
        and "" not in (digests := (one.state_sha256, two.state_sha256))
        and digests[0] != digests[1]
    ):
        yield f"the state after step {one.steps - 1} is not bit-equal, though every loss is"


def _facts(result: RunResult) -> dict[str, str]:
    """Returns what the bits of a correct step depend on besides the request, keyed by its name in messages."""
    _, _, library = str(result.machine.get("system", "")).rpartition("-with-")  # the kernel computes nothing
    return {
        **{name: version for name, version in result.versions.items() if name not in _OURS},
        "CPU": str(result.machine.get("cpu", "")),
        "C library": library,
        "backend": result.backend,
        "device": result.device_note,
    }
