"""Mistakes of gradient accumulation that are told from the micro-batches of one step."""

from samestep.common.mistakes.evidence import Evidence, common_ratio
from samestep.common.mistakes.mistake import Mistake, Words, near, spell


def _times(evidence: Evidence) -> Words | None:
    """Loss and gradients, as they were before they were clipped, have a factor that is none of the numbers of the run."""
    ratio, loss = common_ratio(evidence.gradients), evidence.loss_ratio
    if ratio is None or loss is None:
        return None
    ratio *= evidence.a.factor / evidence.b.factor
    if near(ratio, 1.0) or not near(loss, ratio):
        return None
    return {"ratio": spell(ratio), "when": ", before clipping" if evidence.is_transformed else ""}


MICROBATCHES = (
    Mistake(
        "loss_times",
        ("loss",),
        _times,
        "loss and every gradient of B are {ratio} times A's{when}: the loss is divided by another number, such as one that "
        "counts padding or ignored targets, or has a factor of its own",
        "qubvel-org/segmentation_models.pytorch#852",
    ),
)
