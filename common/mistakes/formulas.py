"""Mistakes in the formula of an optimizer: what makes an update of the right gradient."""

import dataclasses
import math
from collections.abc import Iterator

from samestep.common.mistakes.evidence import Evidence, SeenTensor, common_ratio
from samestep.common.mistakes.mistake import Mistake, Words, near, spell
from samestep.common.steps.projections import project_ones


def _moves(evidence: Evidence) -> list[SeenTensor]:
    return [each for each in evidence.moves if each.role == "parameter"]


def _ratio(evidence: Evidence) -> float | None:
    """Returns the one factor of all moves, weight decay left out, if there is one and it is not 1."""
    moves, scalars = _moves(evidence), evidence.a.scalars
    unit = scalars.get("lr", 0.0) * scalars.get("weight_decay", 0.0)
    for each in (moves, [_undecayed(move, unit) for move in moves] if unit else []):
        ratio = common_ratio(each)
        if ratio is not None and ratio > 0 and not near(ratio, 1.0):
            return ratio
    return None


def _undecayed(move: SeenTensor, unit: float) -> SeenTensor:
    """Returns a move without the decay, which takes a multiple of the weights off."""
    if move.before is None or not (move.one.any() or move.other.any()):
        return move
    return dataclasses.replace(move, one=move.one + unit * move.before, other=move.other + unit * move.before)


def _betas(evidence: Evidence) -> tuple[float, float] | None:
    betas = [evidence.a.scalars.get(f"betas.{number}") for number in range(2)]
    known = [beta for beta in betas if beta is not None and 0 < beta < 1]
    return (known[0], known[1]) if len(known) == 2 else None


def _corrections(betas: tuple[float, float], steps: int) -> tuple[float, float]:
    """Returns what the means of gradients and of their squares are corrected by, as factors of an update."""
    return 1 / (1 - betas[0] ** steps), math.sqrt(1 - betas[1] ** steps)


def _steps_of_microbatches(evidence: Evidence) -> Words | None:
    """B's update has the bias correction of later steps: it counts each micro-batch as one."""
    ratio, betas, passes = _ratio(evidence), _betas(evidence), evidence.b.passes
    if ratio is None or betas is None or passes < 2:
        return None
    steps = evidence.step + 1
    now, later = (math.prod(_corrections(betas, each)) for each in (steps, steps * passes))
    return {"steps": str(steps), "counted": str(steps * passes)} if near(ratio, later / now) else None


def _forms(betas: tuple[float, float], steps: int) -> Iterator[tuple[float, str]]:
    """Yields what an update is multiplied by if a correction is missing or another one, and how that is said."""
    first, second = _corrections(betas, steps)
    yield 1 / (first * second), "corrects no bias"
    yield 1 / first, "does not correct the bias of the mean of gradients"
    yield 1 / second, "does not correct the bias of the mean of squares"
    yield second, "corrects the bias of the mean of squares twice"
    yield first, "corrects the bias of the mean of gradients twice"
    inverted = math.sqrt(betas[1] ** steps) / betas[0] ** steps
    yield inverted / (first * second), "corrects by beta^t where 1 - beta^t is right"


def _bias_correction(evidence: Evidence) -> Words | None:
    ratio, betas = _ratio(evidence), _betas(evidence)
    if ratio is None or betas is None:
        return None
    found = [how for factor, how in _forms(betas, evidence.step + 1) if near(ratio, factor)]
    return {"ratio": spell(ratio), "how": found[0]} if found else None


def _decay_without_weight(evidence: Evidence) -> Words | None:
    """B takes lr x decay off every weight where A takes lr x decay x weight."""
    scalars = evidence.b.scalars
    unit, moves = scalars.get("lr", 0.0) * scalars.get("weight_decay", 0.0), _moves(evidence)
    if not unit or not any(each.differs for each in moves) or any(each.before is None for each in moves):
        return None
    driven = [each for each in moves if each.one.any() or each.other.any()]
    explained = [each.explained_by(1.0, unit * (each.before - project_ones(each.shape))) for each in driven]  # type: ignore[operator]
    return {"unit": f"{unit:g}"} if all(explained) else None


FORMULAS = (
    Mistake(
        "steps_of_microbatches",
        ("update",),
        _steps_of_microbatches,
        "B corrects the bias of its means for {counted} steps, and A for {steps}: it counts each micro-batch as a step",
        "keras-team/keras#19990",
        has_sides=True,
    ),
    Mistake(
        "bias_correction",
        ("update",),
        _bias_correction,
        "the gradients are the same, and every update of B is {ratio} times A's: B {how}",
        "kozistr/pytorch_optimizer#305",
        has_sides=True,
    ),
    Mistake(
        "decay_without_weight",
        ("update",),
        _decay_without_weight,
        "B takes lr x weight_decay ({unit}) off every weight, and A that times the weight",
        "jettify/pytorch-optimizer#454",
        has_sides=True,
    ),
)
