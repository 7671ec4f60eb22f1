"""Mistakes in the use of correct gradients: what moves, what does not, and how far."""

import numpy as np

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.groups import groups_of
from samestep.common.mistakes.mistake import Mistake, Words, few, names_of, near, spell
from samestep.common.mistakes.seen_tensor import SeenTensor, common_ratio, differing, length
from samestep.common.steps.record import FOLLOWER

MOST_FACTORS = 4
"""The largest number of ratios between updates, unless learning rates have them as well; more of them mean another formula."""


def _update_times(evidence: Evidence) -> Words | None:
    ratio = common_ratio(evidence.driven)
    return None if ratio is None or near(ratio, 1.0) or abs(ratio) < 1e-6 else {"ratio": spell(ratio)}


def _factors(evidence: Evidence) -> Words | None:
    """Checks that a few factors, some of them not 1, explain all updates.

    Tensors that A updates for the first time are left out, since B may have updated them before.
    """
    factors: list[tuple[float, list[str]]] = []
    new = {each.name for each in evidence.gradients if each.earlier is not None and not each.earlier.any()}
    for each in evidence.driven:
        if each.differs and each.name in new:
            return None
        ratio = 1.0 if not each.differs else common_ratio([each]) if each.size > 1 else None
        if ratio is None or ratio < 1e-6:
            return None
        names = next((names for number, names in factors if near(ratio, number)), None)
        if names is None:
            factors.append((ratio, names := []))
        names.append(each.name)
    ours, theirs = ([each["lr"] for each in groups_of(side.scalars, ["lr"])] for side in (evidence.a, evidence.b))
    are_rates = all(any(near(ratio * one, other) for one in ours for other in theirs) for ratio, _ in factors)
    if len(factors) < 2 or (len(factors) > MOST_FACTORS and not are_rates):
        return None
    return {
        "what": ", and ".join(f"of {few(names)} is {spell(ratio)} times A's" for ratio, names in factors if ratio != 1)
    }


def _does_not_move(evidence: Evidence) -> Words | None:
    pushed = {each.name for each in evidence.gradients if each.norm > each.bound * each.rounding}
    apart = [each for each in differing(evidence.parameters) if each.name in pushed]
    still = [each for each in apart if length(each.other) <= each.bound * each.rounding]
    if not still or len(still) < len(apart):
        return None
    return {"names": names_of(still, evidence.parameters)}


def _drifts(evidence: Evidence) -> Words | None:
    """Checks that B moves tensors without a gradient, which A leaves unchanged."""
    pushed = {each.name for each in evidence.gradients if each.one.any() or each.other.any()}
    apart = differing(evidence.parameters)
    moved = [each for each in apart if length(each.one) <= each.bound * each.rounding]
    unused = [each for each in moved if each.name not in pushed]
    return {"names": names_of(unused, evidence.parameters)} if unused and len(unused) == len(apart) else None


def _statistics_move(evidence: Evidence) -> Words | None:
    moved = [each for each in _statistics_alone(evidence) if not each.one.any()]
    return {"names": names_of(moved, evidence.moves)} if moved else None


def _statistics_differ(evidence: Evidence) -> Words | None:
    buffers = _statistics_alone(evidence)
    return {"names": names_of(buffers, evidence.moves)} if buffers else None


def _unbiased(evidence: Evidence) -> Words | None:
    """Checks that B adds a share of the variance by which A moves its own, up to the momentum, to A's moves."""
    buffers = _statistics_alone(evidence)
    of_all = [each for each in evidence.moves if each.role == "buffer"]
    if not buffers or 2 * len(buffers) > len(of_all):  # means are the same
        return None
    numbers = list[int]()
    for each in buffers:
        basis = np.stack([each.one, each.before], 1)
        (share, kept), *_ = np.linalg.lstsq(basis, each.other - each.one)
        if not 0 < kept <= share < 1 or common_ratio([each]) or not each.made_by(basis @ (share, kept)):
            return None
        numbers.append(round(1 + 1 / share))
    counts = ", ".join(f"{count}" for count in sorted({*numbers}))
    return {"names": names_of(buffers, evidence.moves), "counts": counts}


def _statistics_alone(evidence: Evidence) -> list[SeenTensor]:
    """Returns the buffers that differ; empty if a parameter differs."""
    buffers = [each for each in differing(evidence.moves) if each.role == "buffer"]
    return [] if differing(evidence.parameters) else buffers


def _follows_otherwise(evidence: Evidence) -> Words | None:
    """Checks that only networks that no optimizer updates differ."""
    apart = differing(evidence.moves)
    if not apart or any(each.role != FOLLOWER for each in apart):
        return None
    ratio = common_ratio(apart)
    how = "" if ratio is None or abs(ratio) < 1e-6 else f", and moves {spell(ratio)} times as far in B"
    return {"names": names_of(apart), "how": how}


def _followed_otherwise(evidence: Evidence) -> Words | None:
    """Checks that writes to networks between two steps differ by a factor, so this step's update is not the cause."""
    apart = [each for each in differing(evidence.moves) if each.role == FOLLOWER]
    ratio = common_ratio(apart)
    if ratio is None or near(ratio, 1.0) or all(each.size == 1 for each in apart):
        return None
    if any(
        near(each.ratio, ratio) for each in differing(evidence.parameters)
    ):  # the followers then follow these parameters
        return None
    how = "stand still" if abs(ratio) < 1e-6 else f"have moved {spell(ratio)} times as far"
    return {"names": names_of(apart), "how": how}


FOLLOWED = (
    Mistake(
        "followed_otherwise",
        ("targets", "loss", "gradient"),
        _followed_otherwise,
        "weights of another network ({names}), which no gradient updates, {how} in {b} since the step before, and what is "
        "computed with them differs: a target network, a teacher or an average of the weights, with another decay, or updated at "
        "another time or not at all",
    ),
)
"""Mistakes of scripts that write followers between updates, and train on their outputs."""
UPDATES = (
    Mistake(
        "follows_otherwise",
        ("update",),
        _follows_otherwise,
        "the trained weights are the same, but another network differs ({names}), which no gradient updates{how}: an average "
        "of the weights, a teacher or a target network, with another decay, or updated at another time or not at all",
    ),
    Mistake(
        "unused_parameters_drift",
        ("update",),
        _drifts,
        "in {b}, the update moved {names} without a gradient; in {a}, it did not",
        "pytorch/pytorch#128949",
    ),
    Mistake(
        "weights_do_not_move",
        ("update",),
        _does_not_move,
        "the gradients are the same, but in {b} {names} stood still: the optimizer holds other tensors",
        "huggingface/accelerate#2665",
    ),
    Mistake(
        "frozen_statistics_move",
        ("update",),
        _statistics_move,
        "the statistics {names} stand still in {a}, but move in {b}",
        "keras-team/keras#7085",
    ),
    Mistake(
        "unbiased_statistics",
        ("update",),
        _unbiased,
        "only running variances differ ({names}): in {b} they move by sums of squares over n - 1, and in {a} over n (n is "
        "{counts}): batch normalization of PyTorch takes n - 1, and that of Keras n",
    ),
    Mistake(
        "other_statistics",
        ("update",),
        _statistics_differ,
        "only running statistics differ ({names}): they are moved more often, by other examples, or with another "
        "momentum",
        "pytorch/pytorch#62471",
    ),
    Mistake(
        "update_times",
        ("update",),
        _update_times,
        "the gradients are the same, but every update of B is {ratio} times A's: another learning rate, two "
        "updates in one step, or another formula",
    ),
    Mistake(
        "update_factors",
        ("update",),
        _factors,
        "the gradients are the same, but the update {what}: other learning rates of groups, parameters in other groups, or "
        "another formula for some",
    ),
)
