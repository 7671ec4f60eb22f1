"""Mistakes in what is done with the right gradients: rates, schedules, decay, what moves and what does not."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from samestep.common.mistakes.evidence import COMPUTED, Evidence, SeenTensor, common_ratio, length
from samestep.common.mistakes.mistake import Mistake, Words, near, spell

MOST_RUN_AHEAD = 64
"""How many times as fast a schedule may run."""

LEAST = 16
"""Numbers in the tensors that differ, for the share of their weights to be no chance."""


def _rates(evidence: Evidence) -> tuple[float, float] | None:
    a, b = (side.scalars.get("lr") for side in (evidence.a, evidence.b))
    return None if a is None or b is None or not a or near(b / a, 1.0) else (a, b)


def _factors(evidence: Evidence) -> Iterator[tuple[float, str]]:
    for side in (evidence.a, evidence.b):
        for number, what in ((side.world, "processes"), (side.passes, "micro-batches")):
            if number > 1:
                yield float(number), f"the number of {what} ({number})"
                yield math.sqrt(number), f"the root of the number of {what} ({number})"


def _rate_by_ranks(evidence: Evidence) -> Words | None:
    """The learning rate has a factor at every step so far, and it is the number of processes or micro-batches, or its root."""
    rates = _rates(evidence)
    if rates is None or (len(evidence.a.rates) > 1 and near(evidence.b.rates[0], evidence.a.rates[0])):
        return None
    ratio = rates[1] / rates[0]
    for number, what in _factors(evidence):
        if near(ratio, number) or near(ratio, 1 / number):
            return {"ratio": spell(ratio), "what": what}
    return None


def _schedule(evidence: Evidence) -> Words | None:
    """B's rate at step k is A's at step N k, as far as A went."""
    a, b = evidence.a.rates, evidence.b.rates
    if _rates(evidence) is None or len(b) < 2:
        return None
    for times in range(2, MOST_RUN_AHEAD + 1):
        common = [(b[k], a[k * times]) for k in range(len(b)) if k * times < len(a)]
        if len(common) > 1 and all(near(one, other) for one, other in common) and len({one for one, _ in common}) > 1:
            return {"times": str(times)}
    return None


def _other_scalar(evidence: Evidence) -> Words | None:
    """A hyper-parameter is another one."""
    a, b = evidence.a.scalars, evidence.b.scalars
    names = [name for name in a if name in b and name not in COMPUTED and not same_number(a[name], b[name])]
    words = [f"{name} is {a[name]:.6g} in A and {b[name]:.6g} in B" for name in names]
    return {"what": ", ".join(words[:4])} if words else None


def same_number(one: float, other: float) -> bool:
    """Returns whether two hyper-parameters are the same, but for float32.

    Args:
        one: The one.
        other: The other.
    """
    return one == other or abs(one - other) <= 1e-6 * abs(one) or (math.isnan(one) and math.isnan(other))


def _update_times(evidence: Evidence) -> Words | None:
    ratio = common_ratio(_parameters(evidence))
    return None if ratio is None or near(ratio, 1.0) or abs(ratio) < 1e-6 else {"ratio": spell(ratio)}


def _parameters(evidence: Evidence) -> list[SeenTensor]:
    return [each for each in evidence.moves if each.role == "parameter"]


def _differing(evidence: Evidence) -> list[SeenTensor]:
    return [each for each in _parameters(evidence) if each.differs]


def _decay_of(seen: Sequence[SeenTensor]) -> float | None:
    """c, if B's moves are A's plus c times the weights."""
    known = [each for each in seen if each.before is not None and length(each.before) > 0]
    if not known or len(known) < len(seen):
        return None
    weights = [(length(each.before) / each.rounding if each.rounding else 1e12) for each in known]  # type: ignore[arg-type]
    fits = [float(each.before @ (each.other - each.one)) / float(each.before @ each.before) for each in known]  # type: ignore[operator,union-attr]
    factor = sum(w * fit for w, fit in zip(weights, fits, strict=True)) / sum(weights)
    explains = all(each.explained_by(1.0, factor * each.before) for each in known)  # type: ignore[operator]
    return factor if explains else None


def _decay(evidence: Evidence) -> tuple[float, float] | None:
    """Returns how many times lr x decay x weight B takes off beyond A, and lr x decay."""
    differing = _differing(evidence)
    factor = _decay_of(differing) if differing else None
    scalars = evidence.b.scalars if evidence.b.scalars.get("weight_decay") else evidence.a.scalars
    unit = scalars.get("lr", 0.0) * scalars.get("weight_decay", 0.0)
    return None if factor is None or not unit else (-factor / unit, unit)


def _decay_each_microbatch(evidence: Evidence) -> Words | None:
    found, passes = _decay(evidence), max(evidence.a.passes, evidence.b.passes)
    if found is None or passes < 2 or not abs(abs(found[0]) - (passes - 1)) < 0.05 * (passes - 1):
        return None
    return {"passes": str(passes), "who": "B" if found[0] > 0 else "A"}


def _decay_otherwise(evidence: Evidence) -> Words | None:
    """Decay is there in one of the two only, or to another extent, for all tensors that differ."""
    found, size = _decay(evidence), sum(each.size for each in _differing(evidence))
    if found is None or _decay_each_microbatch(evidence) or size < LEAST or round(abs(found[0])) < 1:
        return None
    if abs(abs(found[0]) - round(abs(found[0]))) > 0.05:
        return None
    kinds = {each.kind for each in _differing(evidence)}
    words = {"norm": "norms", "table": "embeddings", "bias": "biases", "kernel": "kernels"}
    every = kinds == {each.kind for each in _parameters(evidence)}
    return {
        "which": "every parameter" if every else " and ".join(words[each] for each in sorted(kinds)),
        "times": f"{abs(found[0]):.3g}",
        "way": "more" if found[0] > 0 else "less",
    }


def _does_not_move(evidence: Evidence) -> Words | None:
    driven = {each.name for each in evidence.gradients if each.norm > each.bound * each.rounding}
    differing = [each for each in _differing(evidence) if each.name in driven]
    still = [each for each in differing if length(each.other) <= each.bound * each.rounding]
    if not still or len(still) < len(differing):
        return None
    return {"names": _names(still, _parameters(evidence))}


def _drifts(evidence: Evidence) -> Words | None:
    """Tensors without a gradient, which A leaves where they are, move in B."""
    driven = {each.name for each in evidence.gradients if each.one.any() or each.other.any()}
    moved = [each for each in _differing(evidence) if length(each.one) <= each.bound * each.rounding]
    unused = [each for each in moved if each.name not in driven]
    if not unused or len(unused) < len(_differing(evidence)):
        return None
    return {"names": _names(unused, _parameters(evidence))}


def _statistics_move(evidence: Evidence) -> Words | None:
    buffers = [each for each in evidence.moves if each.role == "buffer" and each.differs]
    moved = [each for each in buffers if not np.any(each.one)]
    if not moved or _differing(evidence):
        return None
    return {"names": _names(moved, evidence.moves)}


def _statistics_differ(evidence: Evidence) -> Words | None:
    buffers = [each for each in evidence.moves if each.role == "buffer" and each.differs]
    if not buffers or _differing(evidence) or _statistics_move(evidence) or _statistics_move(evidence.swapped()):
        return None
    return {"names": _names(buffers, evidence.moves)}


def _names(seen: Sequence[SeenTensor], every: Sequence[SeenTensor]) -> str:
    if len(seen) == len(every):
        return "every parameter"
    rest = f" and {len(seen) - 3} more" if len(seen) > 3 else ""
    return ", ".join(each.name for each in seen[:3]) + rest


HYPER = (
    Mistake(
        "rate_by_processes",
        ("hyper-parameters",),
        _rate_by_ranks,
        "B's learning rate is {ratio} times A's: multiplied or divided by {what}",
        "huggingface/accelerate#2142",
    ),
    Mistake(
        "schedule_runs_n_times",
        ("hyper-parameters",),
        _schedule,
        "B's schedule runs {times} times as fast: its learning rate at step k is A's at step {times} k",
        "huggingface/accelerate#2142",
        has_sides=True,
    ),
    Mistake("other_hyperparameter", ("hyper-parameters",), _other_scalar, "{what}", ""),
)
UPDATES = (
    Mistake(
        "unused_parameters_drift",
        ("update",),
        _drifts,
        "{names} have no gradient and stand still in A, and move in B",
        "pytorch/pytorch#128949",
        has_sides=True,
    ),
    Mistake(
        "decay_each_microbatch",
        ("update",),
        _decay_each_microbatch,
        "{who} takes the weight decay off at each of {passes} micro-batches, not once a step",
        "keras-team/keras#19990",
    ),
    Mistake(
        "other_decay",
        ("update",),
        _decay_otherwise,
        "B takes {times} times lr x weight_decay x weight {way} off {which} than A: the decay is left out, taken twice, or "
        "put into the gradient",
        "",
    ),
    Mistake(
        "weights_do_not_move",
        ("update",),
        _does_not_move,
        "the gradients are the same, and in B {names} are not updated: the optimizer holds other tensors",
        "huggingface/accelerate#2665",
        has_sides=True,
    ),
    Mistake(
        "frozen_statistics_move",
        ("update",),
        _statistics_move,
        "{names} are statistics that stand still in A and move in B",
        "keras-team/keras#7085",
        has_sides=True,
    ),
    Mistake(
        "local_statistics",
        ("update",),
        _statistics_differ,
        "only running statistics differ ({names}): each rank or micro-batch normalizes by its own examples, or moves them "
        "more often",
        "",
    ),
    Mistake(
        "update_times",
        ("update",),
        _update_times,
        "the gradients are the same, and every update of B is {ratio} times A's: another learning rate, or two steps in one",
        "",
    ),
)
