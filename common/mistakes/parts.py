"""Mistakes in a part of the gradients: missing, stale, not exchanged or counted twice."""

from collections.abc import Sequence

import numpy as np

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.gradient_arithmetic import GRADIENTS, PART, processes, ratio_words
from samestep.common.mistakes.mistake import Mistake, Words, few, spell
from samestep.common.mistakes.seen_tensor import SeenTensor, common_ratio, differing, length


def part_only(evidence: Evidence) -> Words | None:
    """Checks that only tensors of one kind differ, and that there are ranks over which they can be summed."""
    if max(evidence.a.world, evidence.b.world) < 2:
        return None
    apart = differing(evidence.gradients)
    kinds = {each.kind for each in apart}
    of_kind = [each for each in evidence.gradients if each.kind in kinds]
    if any(_is_nothing(each.other) or _is_nothing(each.one) or each.off < PART for each in apart):
        return None
    if not apart or "kernel" in kinds or len(apart) == len(evidence.gradients) or len(of_kind) > len(apart):
        return None
    words = {"norm": "norms", "table": "embeddings", "bias": "biases"}
    ratio = common_ratio(apart)
    how = "" if ratio is None else f" by a factor of {spell(ratio)}"
    return {"kinds": " and ".join(words[each] for each in sorted(kinds)), "how": how}


def part_times(evidence: Evidence) -> Words | None:
    """Checks that the tensors that differ share one ratio, which is the number of processes or its inverse."""
    apart = differing(evidence.gradients)
    ratio = common_ratio(apart)
    if ratio is None or all(each.explained_by(ratio) for each in evidence.gradients):
        return None
    words = ratio_words(ratio, processes(evidence))
    return words and {"names": few([each.name for each in apart])} | words


def stale(evidence: Evidence) -> Words | None:
    """Checks that the gradients of B are those that both runs had one step before, while the losses do not show it."""
    return None if evidence.phase == "loss" else _repeats(evidence)


def _repeats(evidence: Evidence) -> Words | None:
    """Checks that the gradients of B are those that both runs had one step before."""
    is_that = (each.earlier is not None and each.made_by(each.earlier, 0.0) for each in evidence.gradients)
    return {} if differing(evidence.gradients) and all(is_that) else None


def updated_again(evidence: Evidence) -> Words | None:
    """Checks that B has no loss at this step, and that its gradients are those that both runs had one step before."""
    return _repeats(evidence) if evidence.b.loss is None and evidence.a.loss is not None else None


def kept(evidence: Evidence) -> Words | None:
    """Checks that B's gradients are A's plus A's gradients of an earlier step, after clipping."""
    ratio = evidence.clipped
    if all(each.explained_by(ratio) for each in evidence.gradients):
        return None
    for each in evidence.gradients:
        if each.strays is None:
            return None
        added = evidence.b.factor * each.strays[0]
        larger = max(1.0, abs(ratio), length(added) / each.norm if each.norm else 1.0)
        if not each.made_by(added, ratio, larger):
            return None
    return {}


def untied(evidence: Evidence) -> Words | None:
    """Checks that only one gradient differs, and that B has a further parameter of the same shape."""
    apart = differing(evidence.gradients)
    if len(apart) != 1:
        return None
    own = [name for name, shape in evidence.b.only.items() if shape == apart[0].shape and len(shape) > 1]
    return {"own": own[0], "name": apart[0].name} if own else None


def missing(evidence: Evidence) -> Words | None:
    """Checks that tensors with a gradient in A have none, or do not exist, in B, and all others agree before clipping."""
    lost, ratio = lost_gradients(evidence), evidence.clipped
    apart = [each for each in evidence.gradients if not each.explained_by(ratio)]
    names = [*(each.name for each in lost), *evidence.a.trained_alone]
    if not names or evidence.b.trained_alone or len(lost) < len(apart):
        return None
    return {"what": said_gradients(names)}


def lost_gradients(evidence: Evidence) -> list[SeenTensor]:
    """Returns the gradients that are zero or missing in B, but not in A."""
    return [each for each in differing(evidence.gradients) if _is_nothing(each.other) and not _is_nothing(each.one)]


def said_gradients(names: Sequence[str]) -> str:
    """Returns a clause saying that the named parameters get gradients."""
    return f"{names[0]} gets a gradient" if len(names) == 1 else f"{len(names)} parameters ({few(names)}) get gradients"


def _is_nothing(projections: np.ndarray) -> bool:
    return not length(projections) > 0


def unexchanged(evidence: Evidence) -> Words | None:
    """Checks that the ranks of B gave their optimizers different gradients."""
    split = evidence.b.split("gradient").keys()
    trained = {each.name for each in evidence.gradients}
    kinds = {each.kind for each in evidence.gradients if each.name in split}
    if not kinds & {"kernel", "table"} or evidence.a.splits:
        return None
    which = "all parameters" if split >= trained else f"{len(split)} of {len(trained)} parameters"
    return {"which": which}


PARTS = (
    Mistake(
        "forgotten_exchange",
        (*GRADIENTS, "replicas"),
        unexchanged,
        "the gradients of {which} differ between the ranks of {b}: they were not exchanged",
        "pytorch/pytorch#104336",
        of_step="the gradient is the first shard's own mean: the exchange between {devices} devices was forgotten",
    ),
    Mistake(
        "missing_gradients",
        GRADIENTS,
        missing,
        "{what} in {a} alone: frozen, detached, missing, not reached or held by no optimizer in {b}",
        "pytorch/pytorch#69031",
    ),
    Mistake(
        "stale_gradient",
        GRADIENTS,
        stale,
        "every gradient of {b} is that of the step before",
        "pytorch/pytorch#193061",
        of_step="it applied the gradient of the step before: the exchange lags by one step",
    ),
    Mistake(
        "gradients_not_cleared",
        GRADIENTS,
        kept,
        "every gradient of {b} is {a}'s plus that of a step before, which {a} clears and {b} does not: a `zero_grad` is missing",
        "pytorch/pytorch#47175",
    ),
    Mistake(
        "untied_head",
        GRADIENTS,
        untied,
        "only the gradient of {name} differs, and {b} has one more parameter of the same shape, {own}: the two are tied"
        " in {a}, and no longer in {b}",
        "facebookresearch/lingua#75",
        of_step="the tied table has only half of its gradient, that of the lookups: the head is no longer tied to it",
    ),
    Mistake(
        "partial_on_replicated",
        GRADIENTS,
        part_only,
        "only the gradients of {kinds} differ{how}: they were not summed over the ranks, or were summed twice",
        "NVIDIA/Megatron-LM#1446",
        of_step="norms and biases have only one rank's part of their gradient: it was not summed over the ranks",
    ),
    Mistake(
        "part_times_processes",
        GRADIENTS,
        part_times,
        "only the gradients of {names} differ, and each is {ratio} times A's, {way} the number of processes "
        "({number}): they are summed where the others are averaged, exchanged twice, or lost where all ranks' outputs are "
        "gathered by a call that passes no gradient back",
        "pytorch/pytorch#160285",
    ),
)
AGAIN = (
    Mistake(
        "updated_again",
        ("data", "hyper-parameters", *GRADIENTS),
        updated_again,
        "{b} has no backward pass of its own at this step: it updates its weights once more with the gradients of the "
        "step before",
        "mzolfaghari/ECO-pytorch#1",
    ),
)
"""Mistakes of steps without a schedule or examples, which are tried first."""
