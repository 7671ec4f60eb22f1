"""Judges the updates of a user's optimizer, where rounding alone may decide weights or optimizer state.

The true gradient of some parameters is zero: that of the bias of an attention's keys, or of a bias before a normalization. What
is computed instead is rounding. An optimizer that takes its sign, or divides by its size, moves such a weight as far as any
other, and every correct run moves it somewhere else. For an unknown optimizer, no formula predicts this. So the reference is
repeated a few times from initial weights that are changed in their last bit. Numbers that this changes by much are not determined
by the model.
"""

import dataclasses

import numpy as np

from samestep.common.judging.parity import WEIGHT_BOUND, Parity
from samestep.common.judging.reference_run import Rerun
from samestep.common.judging.roundoff import MOVE_NOISE, SPREAD
from samestep.common.program import Arrays, TrainState
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.strategy import Run

TIMES = 3
"""The number of times that the reference is repeated."""
LEAST_STEPS = 8
"""The fewest steps of a repetition: in half of them, the sign of a rounding error is the same by chance."""
_DECIDED = 0.1
"""The least share of its whole move by which the last bit changes a weight's end, if rounding decides that move."""


def judge_updates(
    reference: Run, parity: Parity, reached: TrainState, wanted: TrainState, start: TrainState, rerun: Rerun
) -> Parity:
    """Judges the weights and optimizer state after the last step of a float64 run with a user's optimizer.

    Args:
        reference: The reference's run of the same steps.
        parity: The verdict on its losses and weights.
        reached: The state that the run reached.
        wanted: The state that the reference reached.
        start: The state from which both started.
        rerun: Repeats steps of the reference.
    """
    if parity.first_bad_step is not None or parity.max_absolute_weight is None:
        return parity
    seen, right = _arrays(reached), _arrays(wanted)
    bounds = _bounds(wanted)
    apart = {name: np.abs(seen[name] - right[name]) for name in right}
    if all((apart[name] <= bounds[name]).all() for name in apart):
        return parity
    moved = _moved_by_rounding(reference, wanted, start, bounds, rerun)
    left = {n: float(np.where(d <= np.maximum(moved[n], bounds[n]), 0, d).max(initial=0.0)) for n, d in apart.items()}
    worst = max(left, key=lambda name: left[name] / bounds[name])
    if left[worst]:
        off = f"after the last step {worst} is off by {left[worst]:.1e} (allowed {bounds[worst]:.0e})"
        return dataclasses.replace(parity, passed=False, reason=f"{off}, which rounding does not explain")
    worst = max(wanted.params, key=lambda name: float(apart[name].max(initial=0.0)))
    if (apart[worst] <= bounds[worst]).all():  # only the state of such a weight is off, which may be any number
        return parity
    reason = (
        f"after the last step {worst} is off by {apart[worst].max():.1e}, by rounding alone: its true gradient is zero there, "
        f"and the optimizer moves it by the sign of what rounding leaves; in {parity.reference} the last bit of the first "
        f"weights moves such a weight by {float(moved[worst].max()) / SPREAD:.1e}"
    )
    return dataclasses.replace(parity, passed=True, reason=reason)


def _arrays(state: TrainState) -> Arrays:
    """Returns the weights and optimizer state, by their names in messages."""
    slots = {f"{slot} of {name}": value for slot, kind in state.slots.items() for name, value in kind.items()}
    return {name: value.astype(np.float64) for name, value in {**state.params, **slots}.items()}


def _bounds(wanted: TrainState) -> dict[str, float]:
    """Returns the bound of each array: as usual for weights, relative to the largest number of its kind for optimizer state."""
    found = dict.fromkeys(wanted.params, WEIGHT_BOUND["float64"])
    for slot, kind in wanted.slots.items():
        largest = max((float(np.abs(value).max(initial=0.0)) for value in kind.values()), default=0.0)
        found |= {f"{slot} of {name}": MOVE_NOISE["float64"] * max(largest, UNIT_ROUNDOFF["float64"]) for name in kind}
    return found


def _moved_by_rounding(
    reference: Run, wanted: TrainState, start: TrainState, bounds: dict[str, float], rerun: Rerun
) -> Arrays:
    """Returns how far rounding may move each number.

    If rounding decides the move of a weight, the weight may move as far as any such weight, and its state may be anything.

    Args:
        reference: The reference's run.
        wanted: The reference's state after the last step.
        start: The state before the first step.
        bounds: How far numbers may move that rounding does not decide.
        rerun: Repeats steps of the reference.
    """
    longer = dataclasses.replace(reference, steps=max(reference.steps, start.step + LEAST_STEPS))
    plain = wanted if longer.steps == reference.steps else rerun.steps(longer).state
    first, last = _arrays(start), _arrays(plain)
    moved = {name: np.zeros_like(value) for name, value in last.items()}
    for seed in range(TIMES):
        signs, bit = np.random.default_rng(seed), 2 * UNIT_ROUNDOFF["float64"]
        params = {n: v * (1 + bit * signs.choice([-1.0, 1.0], v.shape)) for n, v in start.params.items()}
        other = _arrays(rerun.steps(longer, dataclasses.replace(start, params=params)).state)
        moved = {name: np.maximum(moved[name], np.abs(other[name] - last[name])) for name in last}
    whole = {name: np.abs(last[name] - first[name]) for name in last}
    decided = {
        name: np.any(
            [_is_decided(moved[one], whole[one], bounds[one]) for one in (name, *_slots_of(wanted, name))], axis=0
        )
        for name in wanted.params
    }
    reach = (np.maximum(moved[name], whole[name])[where].max(initial=0.0) for name, where in decided.items())
    most = SPREAD * max(map(float, reach))
    found = {name: np.where(where, most, SPREAD * moved[name]) for name, where in decided.items()}
    state = [(one, decided[name]) for name in decided for one in _slots_of(wanted, name)]
    return found | {one: np.where(where, np.inf, SPREAD * moved[one]) for one, where in state}


def _is_decided(moved: np.ndarray, whole: np.ndarray, bound: float) -> np.ndarray:
    """Returns which numbers' moves are decided by rounding: the last bit changes them by a large share of their whole move.

    Args:
        moved: How far the last bit of the first weights moves each number.
        whole: The whole move of each number.
        bound: How far numbers may move that rounding does not decide.
    """
    return (moved > bound) & (moved >= _DECIDED * whole)


def _slots_of(state: TrainState, name: str) -> list[str]:
    return [f"{slot} of {name}" for slot in state.slots]
