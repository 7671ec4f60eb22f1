"""Mistakes of batch normalisation that two recorded runs show."""

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words
from samestep.common.mistakes.moved import names_of


def _normalizes_apart(evidence: Evidence) -> Words | None:
    """Statistics of a batch differ although the weights before them do not, and the runs are cut differently."""
    cuts = {side.world * side.passes for side in (evidence.a, evidence.b)}
    buffers = [each for each in evidence.moves if each.role == "buffer" and each.differs]
    return {"names": names_of(buffers, evidence.moves)} if buffers and len(cuts) > 1 else None


MISTAKES = (
    Mistake(
        "local_statistics",
        ("loss", "gradient"),
        _normalizes_apart,
        "the running statistics ({names}) differ as well as the loss, and only one of the two runs splits its batch: "
        "there each rank or micro-batch normalizes by its own examples",
        "facebookresearch/moco#41",
        of_step="batch normalisation uses the statistics of each shard, where those of the whole batch were asked for",
    ),
)
