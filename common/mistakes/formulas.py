"""Mistakes in the formula of an optimizer, which turns the right gradient into the wrong update."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.groups import groups_of
from samestep.common.mistakes.mistake import Mistake, Words, near, spell
from samestep.common.mistakes.seen_tensor import (
    PROOF,
    SeenTensor,
    common_ratio,
    differing,
    length,
    like_signs,
)
from samestep.common.steps.projections import project_ones

_CLEAR = 20.0
"""How many times possible rounding a difference must be, so that a move within rounding counts as the expected one."""


def _ratio(evidence: Evidence) -> float | None:
    """Returns the one factor between all moves, with or without weight decay; None if there is none or it is 1."""
    moves, scalars = evidence.parameters, evidence.a.scalars
    unit = scalars.get("lr", 0.0) * max(each.get("weight_decay", 0.0) for each in groups_of(scalars) or [{}])
    undecayed = [_undecayed(move, unit) for move in moves] if unit else []
    usual = [other if len(each.shape) > 1 else each for each, other in zip(moves, undecayed, strict=False)]
    for each in (moves, undecayed, usual):  # `usual`: norms and biases have no decay
        ratio = common_ratio(each)
        if ratio is not None and ratio > 0 and not near(ratio, 1.0):
            return ratio
    return None


def _undecayed(move: SeenTensor, unit: float) -> SeenTensor:
    """Returns a move without the decay, which subtracts a multiple of the weights."""
    if not (move.one.any() or move.other.any()):
        return move
    return dataclasses.replace(move, one=move.one + unit * move.before, other=move.other + unit * move.before)


def betas_of(evidence: Evidence) -> tuple[float, float] | None:
    """Returns Adam's two betas; None if A's optimizer has none."""
    betas = [evidence.a.scalars.get(f"betas.{number}") for number in range(2)]
    known = [beta for beta in betas if beta is not None and 0 < beta < 1]
    return (known[0], known[1]) if len(known) == 2 else None


def corrections(betas: tuple[float, float], steps: int) -> tuple[float, float]:
    """Returns the factors by which the bias corrections of the two means, of gradients and of squares, change an update.

    Args:
        betas: Adam's two betas.
        steps: How many steps were taken, including this one.
    """
    return 1 / (1 - betas[0] ** steps), math.sqrt(1 - betas[1] ** steps)


def _corrected(evidence: Evidence) -> tuple[float, tuple[float, float]] | None:
    """Returns the factor of B's updates over uncorrected ones, and the betas; None unless all have one that is not A's."""
    ratio, betas = _ratio(evidence), betas_of(evidence)
    if ratio is None or betas is None:
        return None
    return ratio * math.prod(corrections(betas, steps_taken(evidence))), betas


def steps_taken(evidence: Evidence) -> int:
    """Returns how many steps were taken, including those before the steps that both runs have."""
    return max(len(side.earlier) for side in (evidence.a, evidence.b)) + evidence.step + 1


def _no_bias_correction(evidence: Evidence) -> Words | None:
    found = _corrected(evidence)
    return {} if found and near(found[0], 1.0) else None


def _counted(evidence: Evidence, count: int) -> Words | None:
    """Checks that B's update has the bias correction of another number of steps."""
    found, steps = _corrected(evidence), steps_taken(evidence)
    if not found or count == steps or not near(found[0], math.prod(corrections(found[1], count))):
        return None
    return {"steps": str(steps), "counted": str(count)}


def _steps_of_microbatches(evidence: Evidence) -> Words | None:
    return _counted(evidence, steps_taken(evidence) * max(evidence.b.passes, 1))


def _counts_anew(evidence: Evidence) -> Words | None:
    """Checks for a lost step count, which begins again at 1. Among all smaller counts, some would explain any factor."""
    return _counted(evidence, 1)


def _forms(betas: tuple[float, float], steps: int) -> Iterator[tuple[float, str]]:
    """Yields factors of an uncorrected update that correct it wrongly, each with a clause that describes the mistake."""
    first, second = corrections(betas, steps)
    yield second, "does not correct the bias of the mean of gradients"
    yield first, "does not correct the bias of the mean of squares"
    yield first * second**2, "corrects the bias of the mean of squares twice"
    yield first**2 * second, "corrects the bias of the mean of gradients twice"
    if betas[0] ** steps > 0:  # after thousands of steps it is too small for a float
        yield math.sqrt(betas[1] ** steps) / betas[0] ** steps, "corrects by beta^t where 1 - beta^t is right"


def _bias_correction(evidence: Evidence) -> Words | None:
    ratio, found = _ratio(evidence), _corrected(evidence)
    if ratio is None or found is None:
        return None
    how = [said for factor, said in _forms(found[1], steps_taken(evidence)) if near(found[0], factor)]
    return {"ratio": spell(ratio), "how": how[0]} if how else None


def _decay_without_weight(evidence: Evidence) -> Words | None:
    """Checks that B subtracts lr x decay from every weight where A subtracts lr x decay x weight."""
    scalars = evidence.b.scalars
    unit = scalars.get("lr", 0.0) * scalars.get("weight_decay", 0.0)
    if not unit or not differing(evidence.parameters):
        return None
    is_that = (each.made_by(unit * (each.before - project_ones(each.shape))) for each in evidence.driven)
    return {"unit": f"{unit:g}"} if all(is_that) else None


def _state_lost(evidence: Evidence) -> Words | None:
    """Checks that B moves its weights as a new optimizer does in its first step, while A, which has taken steps, does not."""
    gradients = {each.name: each for each in evidence.gradients}
    moves = differing(evidence.driven)
    if not moves or any(each.name not in gradients for each in moves):
        return None
    seen = [(each, gradients[each.name]) for each in moves]
    has_earlier = all(each.earlier is not None and each.earlier.any() for _, each in seen)
    if not has_earlier and (evidence.step or not evidence.a.earlier):
        return None
    sides = {"one": _groups(evidence.a), "other": (groups := _groups(evidence.b))}
    is_clear = any(length(each.other - each.one) > _CLEAR * each.bound * each.rounding for each in moves)
    if is_clear and all(_is_first_of_momentum(*each, groups) for each in seen):
        return {}
    for factor, epsilon in _first_factors(evidence):
        ours, theirs = (like_signs(seen, of, of_side, (factor, epsilon)) for of, of_side in sides.items())
        if theirs > PROOF and ours < 0:
            return {}
    return None


def _groups(side: Side) -> list[dict[str, float]]:
    """Returns the options of a run's groups, without duplicates."""
    return [*{tuple(each.items()): each for each in groups_of(side.scalars)}.values()]


def _is_first_of_momentum(move: SeenTensor, gradient: SeenTensor, groups: Sequence[Mapping[str, float]]) -> bool:
    """Returns whether B moves by plain gradients although its optimizer keeps a mean of them; RAdam also begins like that."""
    for group in groups:
        momentum, rate, decay = (group.get(name, 0.0) for name in ("momentum", "lr", "weight_decay"))
        times = 1 + momentum * bool(group.get("nesterov"))
        for taken in (times * decay, decay, 0.0):
            expected = -rate * (times * gradient.other + taken * move.before)
            if (momentum or "betas.0" in group) and dataclasses.replace(move, one=expected).explained_by(1.0):
                return True
    return False


def _first_factors(evidence: Evidence) -> Iterator[tuple[float, float]]:
    """Yields how many learning rates the first step moves a number by its gradient's sign, and from which gradient size on."""
    options, betas, steps = evidence.b.scalars, betas_of(evidence), steps_taken(evidence)
    epsilon = options.get("eps", 0.0)
    mean, own = options.get("alpha", 0.0), options.get("rho", 0.0)
    if betas is not None:
        epsilon /= math.sqrt(1 - betas[1])
        yield 1.0, epsilon
        first, second = corrections(betas, steps)
        yield (1 - betas[0]) * first * second / math.sqrt(1 - betas[1]), epsilon  # if only the count is kept
        now, then = (betas[0] * (1 - 0.5 * 0.96 ** (k * options.get("momentum_decay", 1.0))) for k in (1, 2))
        yield 1 + then * (1 - betas[0]) / (1 - now * then), epsilon  # NAdam; Keras has no other decay than 1
    elif 0 < mean < 1:
        yield 1 / math.sqrt(1 - mean), epsilon / math.sqrt(1 - mean)
    elif 0 < own < 1:
        small = math.sqrt(epsilon / (1 - own))
        yield small, small  # Adadelta
        yield 1 / math.sqrt(1 - own), small  # Keras' RMSprop, which adds epsilon to the mean of squares
    elif "lr_decay" in options:
        yield 1.0, epsilon


STATE = (
    Mistake(
        "step_count_lost",
        ("update",),
        _counts_anew,
        "the gradients are the same, but {b} corrects the bias of Adam's moments as if step {steps} of its count were "
        "step {counted}",
        "huggingface/transformers#40245",
        of_step="Adam's bias is corrected as if this were the first step",
    ),
    Mistake(
        "optimizer_state_lost",
        ("update",),
        _state_lost,
        "the gradients are the same, but {b} moves its weights as a new optimizer does in its first step, and {a} does not: the "
        "momentum or the moments of {b}'s optimizer are lost, as when a resumed run loads only its weights, or a Keras model "
        "is compiled again",
        "meta-pytorch/torchft#58",
        of_step="the optimizer state was lost before this step",
    ),
)
"""Mistakes that lose a part of an optimizer's state."""
FORMULAS = (
    Mistake(
        "steps_of_microbatches",
        ("update",),
        _steps_of_microbatches,
        "the bias correction of {b} counts {counted} steps, and that of {a} {steps}: {b} counts each micro-batch as a step",
        "keras-team/keras#19990",
    ),
    Mistake(
        "no_bias_correction",
        ("update",),
        _no_bias_correction,
        "the gradients are the same, but {b} does not correct the bias of Adam's moments",
        "kozistr/pytorch_optimizer#160",
    ),
    *STATE,
    Mistake(
        "bias_correction",
        ("update",),
        _bias_correction,
        "the gradients are the same, but every update of {b} is {ratio} times {a}'s: {b} {how}",
        "kozistr/pytorch_optimizer#305",
    ),
    Mistake(
        "decay_without_weight",
        ("update",),
        _decay_without_weight,
        "{b} subtracts lr x weight_decay ({unit}) from every weight, where {a} subtracts that times the weight",
        "jettify/pytorch-optimizer#454",
    ),
)
