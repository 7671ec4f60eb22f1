"""Mistakes in weight decay: left out, taken twice, or taken off at every micro-batch."""

import dataclasses
from collections.abc import Sequence

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words, names_of
from samestep.common.mistakes.seen_tensor import SeenTensor, differing, length, weighted_mean

CLOSE = 0.05
"""How far a multiple of the decay may be from a whole number."""

LEAST = 16
"""The fewest numbers in the tensors that differ, so that their common share of the weights is not chance."""


def _decay_of(seen: Sequence[SeenTensor]) -> float | None:
    """Returns c if B's moves are A's plus c times the weights; otherwise None."""
    known = [each for each in seen if length(each.before) > 0]
    if not known:
        return None
    fits = [float(each.before @ (each.other - each.one)) / float(each.before @ each.before) for each in known]
    factor = weighted_mean(fits, [(length(each.before), each.rounding) for each in known])
    return factor if all(each.made_by(factor * each.before) for each in seen) else None


def _moves(evidence: Evidence) -> list[SeenTensor]:
    """Returns the moves of the parameters; for plain SGD, without the part of B's moves that its different gradients explain.

    If a script decays its weights between micro-batches, the gradients of the later ones differ as well.
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
    """Compares a move of A with that of plain SGD."""
    return dataclasses.replace(move, one=-rate * gradient.one, other=move.one)


def _decay(evidence: Evidence) -> tuple[float, list[SeenTensor]] | None:
    """Returns the share of the weights that B subtracts beyond A's, and the tensors; None if these have few numbers."""
    seen = differing(_moves(evidence))
    factor = _decay_of(seen) if sum(each.size for each in seen) >= LEAST else None
    return None if factor is None else (-factor, seen)


def _unit(evidence: Evidence) -> float:
    """Returns lr x weight_decay; 0 if neither optimizer has these options, e.g. because the script has its own."""
    scalars = evidence.b.scalars if evidence.b.scalars.get("weight_decay") else evidence.a.scalars
    return scalars.get("lr", 0.0) * scalars.get("weight_decay", 0.0)


def _decay_each_microbatch(evidence: Evidence) -> Words | None:
    """Checks that every tensor with a gradient and weights loses the decay once for each further micro-batch."""
    found, unit, passes = _decay(evidence), _unit(evidence), max(evidence.a.passes, evidence.b.passes)
    if found is None or not unit or passes < 2 or not abs(abs(found[0]) / unit - (passes - 1)) < CLOSE * (passes - 1):
        return None
    pushed = {each.name for each in evidence.driven}
    moves = [each for each in _moves(evidence) if each.name in pushed]
    is_spared = not all(each.explained_by(1.0, -found[0] * each.before) for each in moves)
    return None if is_spared else {"passes": str(passes), "who": "B" if found[0] > 0 else "A"}


def _decay_otherwise(evidence: Evidence) -> Words | None:
    """Checks that only one of the two applies decay, or that it differs in size, for all tensors that differ.

    If no option gives its size, several tensors must lose the same share of their weights.
    """
    found, unit = _decay(evidence), _unit(evidence)
    if found is None or (len(found[1]) < 2 and not unit):
        return None
    share, seen = found
    times = abs(share) / unit if unit else 1.0
    if round(times) < 1 or abs(times - round(times)) > CLOSE:
        return None
    return {
        "which": _said_of_kinds(seen, _moves(evidence)) or names_of(seen, evidence.parameters),
        "amount": f"{times:.3g} x lr x weight_decay" if unit else f"{abs(share):.3g}",
        "way": "more" if share > 0 else "less",
        "how": "left out, applied twice, or put into the gradient" if unit else "left out, or another one",
    }


def _said_of_kinds(decayed: Sequence[SeenTensor], moves: Sequence[SeenTensor]) -> str:
    """Returns the kinds of parameters that are decayed; "" if parameters of these kinds that have weights are left out."""
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
        "B subtracts {amount} x weight {way} from {which} than A does: the decay is {how}",
    ),
)
