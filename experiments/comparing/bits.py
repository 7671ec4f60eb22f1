"""Whether a row has the same bits as before, which can be expected with the same versions on the same kind of machine."""

from collections.abc import Iterator, Sequence

from samestep.common.judging.repetition import EQUAL, compare_losses
from samestep.common.runtime.records import RunResult

_OURS = ("samestep",)
"""The packages whose change excuses other bits, since they compute; the gate is meant to find changes of samestep itself."""


def why_other_bits(now: Sequence[RunResult], then: Sequence[RunResult]) -> str:
    """Returns why the bits of a row may differ although its step is the same; "" if they have to be equal.

    Args:
        now: Today's rounds.
        then: The earlier rounds.
    """
    mine, theirs = _facts(now[0]), _facts(then[0])
    differing = [_spell(name, mine.get(name), theirs.get(name)) for name in {**mine, **theirs}]
    if any(differing):
        return ", ".join(filter(None, differing))
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
    """Returns what the bits of a right step depend on beside the request, by how messages call it."""
    _, _, library = str(result.machine.get("system", "")).rpartition("-with-")  # the kernel computes nothing
    return {
        **{name: version for name, version in result.versions.items() if name not in _OURS},
        "CPU": str(result.machine.get("cpu", "")),
        "C library": library,
        "backend": result.backend,
        "device": result.device_note,
    }


def _spell(name: str, now: str | None, then: str | None) -> str:
    return "" if now == then else f"{name} {now or 'none'} and {then or 'none'}"
