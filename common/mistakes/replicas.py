"""Mistakes after which ranks no longer hold the same weights."""

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words
from samestep.common.steps.gradient_transforms import FOLLOWING, GRADIENT_PHASES


def _scalars_by_rank(evidence: Evidence) -> Words | None:
    """Ranks have other hyper-parameters or loss scales; norms that are computed differ wherever gradients do."""
    decided = {name for phase, name, _ in evidence.b.splits if phase == "scalar"} - {*FOLLOWING}
    split = [(name, ranks) for phase, name, ranks in evidence.b.splits if phase == "scalar" and name in decided]
    if not split or evidence.a.splits:
        return None
    return {"names": ", ".join(name for name, _ in split[:4]), "ranks": " and ".join(map(str, split[0][1]))}


def _skipped(evidence: Evidence) -> Words | None:
    """Some ranks left out the update, and others did not."""
    skipped = [ranks for phase, _, ranks in evidence.b.splits if phase == "skipped"]
    return {"ranks": " and ".join(map(str, skipped[0]))} if skipped and not evidence.a.splits else None


def of_one_kind(evidence: Evidence) -> Words | None:
    """Returns the gradients or weights of norms or biases alone differ between ranks."""
    split = {name: ranks for phase, name, ranks in evidence.b.splits if phase in ("weight", "gradient")}
    kinds = {each.kind for each in (*evidence.moves, *evidence.gradients) if each.name in split}
    if not kinds or kinds & {"kernel", "table"} or evidence.a.splits:
        return None
    ranks = next(iter(split.values()))
    return {"ranks": " and ".join(map(str, ranks))}


def _weights(evidence: Evidence) -> Words | None:
    split = [(name, ranks) for phase, name, ranks in evidence.b.splits if phase == "weight"]
    if not split or evidence.a.splits or of_one_kind(evidence) or _scalars_by_rank(evidence):
        return None
    if any(phase == "gradient" for phase, *_ in evidence.b.splits):
        return None
    return {"count": f"{len(split)} weight{'s' * (len(split) > 1)}", "ranks": " and ".join(map(str, split[0][1]))}


BY_RANK = (
    Mistake(
        "scalars_differ_by_rank",
        ("hyper-parameters", *GRADIENT_PHASES, "replicas"),
        _scalars_by_rank,
        "the value of {names} on rank {ranks} of B differs from that on the other ranks",
        "pytorch/pytorch#136009",
        has_sides=True,
    ),
    Mistake(
        "skipped_on_one_rank",
        (*GRADIENT_PHASES, "update", "replicas"),
        _skipped,
        "the gradient scaler of B skipped the update on some ranks only (rank {ranks} differed from the others)",
        "pytorch/pytorch#115710",
        has_sides=True,
        of_step="one of {devices} ranks skipped the step that the others took: its shards did not move",
    ),
)
REPLICAS = (
    Mistake(
        "replicas_drift",
        ("replicas",),
        _weights,
        "rank {ranks} of B has other values in {count} than the other ranks, from the same gradients: the update "
        "differs by rank",
        "",
        has_sides=True,
    ),
)
