"""Mistakes in gradient accumulation that the micro-batches of one step show."""

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.mistake import Mistake, Words, near, spell
from samestep.common.mistakes.seen_tensor import common_ratio, differing
from samestep.common.steps.gradient_transforms import KEPT_CALLS, ZEROED_PASSES
from samestep.common.steps.recorded_run import digest_of


def goes_on(longer: Side, shorter: Side) -> bool:
    """Returns whether a step also has some examples of the other run's next step: a larger batch, or more micro-batches.

    Args:
        longer: The run whose step has more examples.
        shorter: The other run.
    """
    rest, further = longer.examples - shorter.examples, shorter.following
    if not rest or not further or shorter.examples - longer.examples:
        return False
    # Otherwise a new pass begins, and the last batch is filled up with some of its first examples, which then come twice in a
    # pass.
    is_new = longer.repeated == 0 or digest_of([*further.elements()]) not in shorter.digests
    return (further <= rest and further != shorter.examples) or (
        rest <= further and is_new and not further & shorter.examples
    )


def _times(evidence: Evidence) -> Words | None:
    """Checks that loss and unclipped gradients share a factor that is none of the numbers of the run."""
    ratio, loss = common_ratio(evidence.gradients), evidence.loss_ratio
    if loss is None:
        return None
    clipped = evidence.clipped
    if ratio is None and evidence.is_transformed:  # some are clipped, and others are not
        are_known = all(each.explained_by(loss) or each.explained_by(loss * clipped) for each in evidence.gradients)
        ratio = loss * clipped if are_known else None
    if ratio is None:
        return None
    ratio /= clipped
    # A single number, such as a temperature, has a ratio by chance.
    is_chance = sum(each.size for each in differing(evidence.gradients)) == 1
    if ratio < 0 or near(ratio, 1.0) or not near(loss, ratio) or is_chance:
        return None
    return {"ratio": spell(ratio), "when": ", before clipping" if evidence.is_transformed else ""}


def _zeroed(evidence: Evidence) -> Words | None:
    """Checks that B sets its gradients to zero between backward passes of the step, and A does not."""
    ours, theirs = evidence.counts(ZEROED_PASSES)
    return {"zeroed": str(theirs), "passes": str(evidence.b.passes)} if not ours and theirs else None


def _kept(evidence: Evidence) -> Words | None:
    """Checks that B's closure adds to the gradients of the call before, and A's does not."""
    ours, theirs = evidence.counts(KEPT_CALLS)
    return {"count": str(theirs)} if theirs and not ours else None


MICROBATCHES = (
    Mistake(
        "zeroed_between_passes",
        ("gradient",),
        _zeroed,
        "{b} sets its gradients to zero after {zeroed} of the {passes} backward passes of the step, and {a} after none: "
        "{b}'s update has only what came later",
        "allenai/open-instruct#1498",
    ),
    Mistake(
        "kept_between_calls",
        ("gradient", "update"),
        _kept,
        "the optimizer of {b} calls its closure several times a step, and {count} of the calls of this step added their "
        "gradients to those of the call before: the closure does not set them to zero",
        "skorch-dev/skorch#636",
    ),
    Mistake(
        "loss_times",
        ("loss",),
        _times,
        "the loss and every gradient of B are {ratio} times A's{when}: one of the two divides its loss by another "
        "number, such as one that counts padding or ignored targets, or multiplies it by a factor",
        "qubvel-org/segmentation_models.pytorch#852",
    ),
)
