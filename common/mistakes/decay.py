"""Mistakes in weight decay: left out, taken twice, or taken off at every micro-batch."""

import dataclasses
from collections.abc import Sequence

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words, names_of
from samestep.common.mistakes.seen_tensor import SeenTensor, differing, length, weighted_mean

CLOSE = 0.05
"""How far a multiple of the decay may be from a whole number."""

LEAST = 16
"""Numbers in the tensors that differ, for the share of their weights to be no chance."""


def _decay_of(seen: Sequence[SeenTensor]) -> float | None:
    """c, if B's moves are A's plus c times the weights."""
    known = [each for each in seen if length(each.before) > 0]
    if not known:
        return None
    fits = [float(each.before @ (each.other - each.one)) / float(each.before @ each.before) for each in known]
    factor = weighted_mean(fits, [(length(each.before), each.rounding) for each in known])
    return factor if all(each.made_by(factor * each.before) for each in seen) else None


def _moves(evidence: Evidence) -> list[SeenTensor]:
    """Returns the moves of the parameters. Of plain SGD, that part of B's is taken off which other gradients explain.

    Where a script decays its weights between micro-batches, the gradients of the later ones are others as well.
    """
    if evidence.phase == "update":
        return evidence.parameters
    rate, gradients = evidence.a.scalars.get("lr", 0.0), {each.name: each for each in evidence.gradients}
    seen = [each for each in evidence.parameters if each.name in gradients]
    if not seen or _decay_of([_of_gradient(each, gradients[each.name], rate) for each in seen]) is None:
        return []
    apart = {name: rate * (each.other - each.one) for name, each in gradients.items()}
    return [dataclasses.replace(each, other=each.other + apart[each.name]) for each in seen]


def _of_gradient(move: SeenTensor, gradient: SeenTensor, rate: float) -> SeenTensor:
    """Holds a move of A against that of plain SGD."""
    return dataclasses.replace(move, one=-rate * gradient.one, other=move.one)


def _decay(evidence: Evidence) -> tuple[float, list[SeenTensor]] | None:
    """Returns how many times lr x decay x weight B takes off beyond A, and of which tensors; None if these have few numbers."""
    seen = differing(_moves(evidence))
    factor = _decay_of(seen) if sum(each.size for each in seen) >= LEAST else None
    scalars = evidence.b.scalars if evidence.b.scalars.get("weight_decay") else evidence.a.scalars
    unit = scalars.get("lr", 0.0) * scalars.get("weight_decay", 0.0)
    return None if factor is None or not unit else (-factor / unit, seen)


def _decay_each_microbatch(evidence: Evidence) -> Words | None:
    """Every tensor that has a gradient and weights loses as many times the decay as there are further micro-batches."""
    found, passes = _decay(evidence), max(evidence.a.passes, evidence.b.passes)
    if found is None or passes < 2 or not abs(abs(found[0]) - (passes - 1)) < CLOSE * (passes - 1):
        return None
    pushed = {each.name for each in evidence.driven}
    moves = [each for each in _moves(evidence) if each.name in pushed]
    factor = _decay_of(found[1]) or 0.0
    is_spared = not all(each.explained_by(1.0, factor * each.before) for each in moves)
    return None if is_spared else {"passes": str(passes), "who": "B" if found[0] > 0 else "A"}


def _decay_otherwise(evidence: Evidence) -> Words | None:
    """Decay is there in one of the two only, or to another extent, for all tensors that differ."""
    found = _decay(evidence)
    if found is None or round(abs(found[0])) < 1 or abs(abs(found[0]) - round(abs(found[0]))) > CLOSE:
        return None
    which = _said_of_kinds(found[1], _moves(evidence)) or names_of(found[1], evidence.parameters)
    return {"which": which, "times": f"{abs(found[0]):.3g}", "way": "more" if found[0] > 0 else "less"}


def _said_of_kinds(decayed: Sequence[SeenTensor], moves: Sequence[SeenTensor]) -> str:
    """Returns of which kinds of parameters decay is taken off; "" where it spares some of these kinds that have weights."""
    kinds, factor = {each.kind for each in decayed}, _decay_of(decayed) or 0.0
    if not all(each.explained_by(1.0, factor * each.before) for each in moves if each.kind in kinds):
        return ""
    words = {"norm": "norms", "table": "embeddings", "bias": "biases", "kernel": "kernels"}
    every = kinds == {each.kind for each in moves}
    return "every parameter" if every else " and ".join(words[each] for each in sorted(kinds))


EACH_DECAY = (
    Mistake(
        "decay_each_microbatch",
        ("loss", "gradient", "update"),
        _decay_each_microbatch,
        "{who} applies the weight decay at each of {passes} micro-batches, not once a step",
        "keras-team/keras#19990",
    ),
)
DECAY = (
    Mistake(
        "other_decay",
        ("update",),
        _decay_otherwise,
        "B subtracts {times} x lr x weight_decay x weight {way} from {which} than A does: the decay is left out, "
        "applied twice, or put into the gradient",
    ),
)
