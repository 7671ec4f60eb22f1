"""Mistakes of batch normalization that two recorded runs show."""

import re

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words, names_of
from samestep.common.mistakes.parts import lost_gradients, said_gradients
from samestep.common.mistakes.seen_tensor import SeenTensor, differing

_STATISTICS = re.compile("(?:moving|running)_(?:mean|var)")


def _normalizes_apart(evidence: Evidence) -> Words | None:
    """Looks for batch statistics that differ although the weights before them do not, in runs that are cut differently."""
    cuts = {side.world * side.passes for side in (evidence.a, evidence.b)}
    buffers = [each for each in differing(evidence.moves) if each.role == "buffer"]
    if not buffers or len(cuts) == 1 or _still(evidence) or _still(evidence.swapped()):
        return None
    return {"names": names_of(buffers, evidence.moves)}


def _still(evidence: Evidence) -> list[SeenTensor]:
    """Returns the statistics that move in A but not in B; none if a recorder saw B evaluate."""
    buffers = [each for each in evidence.moves if each.role == "buffer" and _STATISTICS.search(each.name)]
    return [each for each in buffers if each.one.any() and not each.other.any() and not evidence.b.is_evaluated]


def _shown(evidence: Evidence) -> str:
    """Returns what shows that B normalizes differently: the loss, or gradients of weights that are zero; "" if nothing does."""
    if evidence.phase == "loss":
        return "the loss differs"
    apart, starts = differing(evidence.gradients), {each.name: each.before for each in evidence.moves}
    if not apart or any(each.kind == "bias" or starts[each.name].any() for each in apart):
        return ""
    return f"the loss is the same only because of zeros in {names_of(apart)}, whose gradient differs"


def _stand_still(evidence: Evidence) -> Words | None:
    """Looks for statistics that stand still in B, if what is computed from them differs."""
    still = _still(evidence)
    if not still or not (shown := _shown(evidence)):
        return None
    frozen = [each.name for each in lost_gradients(evidence)]
    also = f"; {said_gradients(frozen)} in the other run alone" if frozen else ""
    return {"shown": shown, "names": names_of(still, evidence.moves), "also": also}


MISTAKES = (
    Mistake(
        "local_statistics",
        ("loss", "gradient"),
        _normalizes_apart,
        "the running statistics ({names}) differ as well as the loss, and only one of the two runs splits its batch: "
        "there each rank or micro-batch normalizes by its own examples",
        "facebookresearch/moco#41",
        of_step="batch normalization uses the statistics of each shard, where those of the whole batch were asked for",
    ),
)
STILL = (
    Mistake(
        "statistics_stand_still",
        ("loss", "gradient"),
        _stand_still,
        "{shown}, and the running statistics {names} stand still in {b}, which normalizes by them: its layers are frozen, or it "
        "is called as in evaluation{also}",
    ),
)
"""Mistakes to report if no factor explains all gradients, before less certain ones."""
