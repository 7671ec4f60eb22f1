"""Mistakes of gradient accumulation that are told from the micro-batches of one step."""

from samestep.common.mistakes.evidence import CLIP_CALLS, CLIP_NORM, Evidence, common_ratio
from samestep.common.mistakes.mistake import Mistake, Words, near, spell


def _clip_each(evidence: Evidence) -> Words | None:
    """B clips as often as it has micro-batches, A once, and no factor explains what is left of the gradients."""
    calls, passes = [side.scalars.get(CLIP_CALLS, 0) for side in (evidence.a, evidence.b)], evidence.b.passes
    if passes < 2 or calls != [1, passes] or evidence.a.passes != passes or CLIP_NORM not in evidence.b.scalars:
        return None
    return None if common_ratio(evidence.gradients) is not None else {"passes": str(passes)}


def _times(evidence: Evidence) -> Words | None:
    """Loss and gradients, as they were before they were clipped, have a factor that is none of the numbers of the run."""
    ratio, loss = common_ratio(evidence.gradients), evidence.loss_ratio
    if ratio is None or loss is None:
        return None
    ratio *= evidence.a.clip_coefficient / evidence.b.clip_coefficient
    is_clipped = CLIP_NORM in evidence.a.scalars or CLIP_NORM in evidence.b.scalars
    if near(ratio, 1.0) or not near(loss, ratio):
        return None
    return {"ratio": spell(ratio), "when": ", before clipping" if is_clipped else ""}


MICROBATCHES = (
    Mistake(
        "clip_each_microbatch",
        ("gradient",),
        _clip_each,
        "B clips its gradients {passes} times in a step, after each micro-batch, and A does once",
        "huggingface/accelerate#641",
        has_sides=True,
    ),
    Mistake(
        "loss_times",
        ("loss",),
        _times,
        "loss and every gradient of B are {ratio} times A's{when}: the loss is divided by another number, such as one that "
        "counts padding or ignored targets, or has a factor of its own",
        "qubvel-org/segmentation_models.pytorch#852",
    ),
)
