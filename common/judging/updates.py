"""Judges the updates of a user's optimizer: what is off in weights or state may be decided by rounding alone.

The true gradient of some parameters is zero: that of the bias of an attention's keys, or of a bias before a normalization. What
is computed instead is rounding. An optimizer that takes its sign, or divides by its size, moves such a weight as far as any
other, and every right run moves it elsewhere. For an unknown optimizer, no formula predicts this. So the reference is repeated
a few times from initial weights that are changed in their last bit: what this changes by much is not determined by the model.
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
"""How often the reference is repeated."""
LEAST_STEPS = 8
"""The fewest steps of a repetition: in half of them, the sign of a rounding error is the same by chance."""
_DECIDED = 0.1
"""The share of its whole move by which the last bit changes where a weight ends, if rounding decides that move."""


def judge_updates(
    reference: Run, parity: Parity, reached: TrainState, wanted: TrainState, start: TrainState, rerun: Rerun
) -> Parity:
    """Judges the weights and optimizer state after the last step of a float64 run with a user's optimizer.

    Args:
        reference: The reference's run of the same steps.
        parity: The verdict on its losses and weights.
        reached: Its state.
        wanted: The reference's.
        start: What both started from.
        rerun: Takes the reference's steps again.
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
    if (apart[worst] <= bounds[worst]).all():  # only the state beside such a weight is off, which is any number
        return parity
    reason = (
        f"after the last step {worst} is off by {apart[worst].max():.1e}, by rounding alone: its true gradient is zero there, "
        f"and the optimizer moves it by the sign of what rounding leaves; in {parity.reference} the last bit of the first "
        f"weights moves such a weight by {float(moved[worst].max()) / SPREAD:.1e}"
    )
    return dataclasses.replace(parity, passed=True, reason=reason)


def _arrays(state: TrainState) -> Arrays:
    """Weights and optimizer state, by what messages call them."""
    slots = {f"{slot} of {name}": value for slot, kind in state.slots.items() for name, value in kind.items()}
    return {name: value.astype(np.float64) for name, value in {**state.params, **slots}.items()}


def _bounds(wanted: TrainState) -> dict[str, float]:
    """Returns how far each array may be off: weights as ever, optimizer state relative to the largest number of its kind."""
    found = dict.fromkeys(wanted.params, WEIGHT_BOUND["float64"])
    for slot, kind in wanted.slots.items():
        largest = max((float(np.abs(value).max(initial=0.0)) for value in kind.values()), default=0.0)
        found |= {f"{slot} of {name}": MOVE_NOISE["float64"] * max(largest, UNIT_ROUNDOFF["float64"]) for name in kind}
    return found


def _moved_by_rounding(
    reference: Run, wanted: TrainState, start: TrainState, bounds: dict[str, float], rerun: Rerun
) -> Arrays:
    """Returns how far rounding may take each number: if it decides the move, as far as any such weight, and its state anywhere.

    Args:
        reference: The reference's run.
        wanted: The reference's state after the last step.
        start: Before the first.
        bounds: How far numbers move that rounding does not decide.
        rerun: Takes the reference's steps again.
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
    """Returns which numbers are those whose move rounding decides: the last bit takes them far, measured by how far they go.

    Args:
        moved: By how much the last bit of the first weights moves each.
        whole: The whole move of each.
        bound: How far numbers move that rounding does not decide.
    """
    return (moved > bound) & (moved >= _DECIDED * whole)


def _slots_of(state: TrainState, name: str) -> list[str]:
    return [f"{slot} of {name}" for slot in state.slots]
