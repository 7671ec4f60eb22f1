"""Mistakes after which ranks no longer hold the same weights."""

from collections.abc import Mapping

from samestep.common.errors import count
from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words
from samestep.common.steps.gradient_transforms import FOLLOWING, GRADIENT_PHASES


def _scalars_by_rank(evidence: Evidence) -> Words | None:
    """Checks that ranks of B differ in hyper-parameters or loss scales; norms are left out, since they follow the gradients."""
    split = {name: ranks for name, ranks in evidence.b.split("scalar").items() if name not in FOLLOWING}
    words = _of_b_alone(evidence, split)
    return words and {"names": ", ".join([*split][:4])} | words


def _skipped(evidence: Evidence) -> Words | None:
    """Checks that only some ranks of B skipped the update."""
    return _of_b_alone(evidence, evidence.b.split("skipped"))


def of_one_kind(evidence: Evidence) -> Words | None:
    """Checks that only the gradients or weights of norms or biases differ between ranks."""
    split = evidence.b.split("weight", "gradient")
    kinds = {each.kind for each in (*evidence.moves, *evidence.gradients) if each.name in split}
    return _of_b_alone(evidence, split) if kinds and not kinds & {"kernel", "table"} else None


def _weights(evidence: Evidence) -> Words | None:
    split = {} if evidence.b.split("gradient") else evidence.b.split("weight")
    words = _of_b_alone(evidence, split)
    return words and {"count": count(len(split), "weight")} | words


def _of_b_alone(evidence: Evidence, split: Mapping[str, tuple[int, ...]]) -> Words | None:
    """Returns the ranks of B that differ in the first name; None if none do, or if ranks of A differ as well."""
    return None if not split or evidence.a.splits else {"ranks": " and ".join(map(str, next(iter(split.values()))))}


BY_RANK = (
    Mistake(
        "scalars_differ_by_rank",
        ("hyper-parameters", *GRADIENT_PHASES, "replicas"),
        _scalars_by_rank,
        "the value of {names} on rank {ranks} of {b} differs from that on the other ranks",
        "pytorch/pytorch#136009",
    ),
    Mistake(
        "skipped_on_one_rank",
        (*GRADIENT_PHASES, "update", "replicas"),
        _skipped,
        "the gradient scaler of {b} skipped the update on some ranks only (rank {ranks} differed from the others)",
        "pytorch/pytorch#115710",
        of_step="one of {devices} ranks skipped the step that the others took: its shards did not move",
    ),
)
REPLICAS = (
    Mistake(
        "replicas_drift",
        ("replicas",),
        _weights,
        "rank {ranks} of {b} has other values in {count} than the other ranks, from the same gradients: the update "
        "differs by rank",
    ),
)
