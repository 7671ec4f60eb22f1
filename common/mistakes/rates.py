"""Mistakes in learning rates, schedules and other hyper-parameters."""

import collections
import math
from collections.abc import Iterable, Iterator, Mapping

from samestep.common.errors import count
from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.mistake import Mistake, Words, few, near, spell
from samestep.common.steps.gradient_transforms import CLIP_EACH, CLIP_MOST, CLIP_VALUE, COMPUTED

MOST_RUN_AHEAD = 64
"""The largest factor by which a schedule may run faster, and the largest number of steps by which it may be ahead."""
LEAST_RATES = 2
"""How many rates may agree by chance."""
OF_GRADIENTS = (*COMPUTED, CLIP_EACH, CLIP_MOST, CLIP_VALUE)
"""The scalars of a step that are not options of an optimizer."""


def _rates(evidence: Evidence) -> tuple[float, float] | None:
    a, b = evidence.scalars("lr")
    return None if a is None or b is None or near(b, a) else (a, b)


def _factors(evidence: Evidence) -> Iterator[tuple[float, str]]:
    for side in (evidence.a, evidence.b):
        for number, what in ((side.world, "processes"), (side.passes, "micro-batches")):
            if number > 1:
                yield float(number), f"the number of {what} ({number})"
                yield math.sqrt(number), f"the root of the number of {what} ({number})"


def _rate_by_ranks(evidence: Evidence) -> Words | None:
    """Checks that the rates differ by one factor at every step: the number of processes or micro-batches, or its root."""
    rates = _rates(evidence)
    if rates is None or not rates[0] or (len(evidence.a.rates) > 1 and near(evidence.b.rates[0], evidence.a.rates[0])):
        return None
    ratio = rates[1] / rates[0]
    later = zip(evidence.a.rates[evidence.step :], evidence.b.rates[evidence.step :], strict=False)
    if not all(near(other, ratio * one) for one, other in later):  # under another schedule, one rate has it by chance
        return None
    for number, what in _factors(evidence):
        if near(ratio, number) or near(ratio, 1 / number):
            return {"ratio": spell(ratio), "what": what}
    return None


def _common(evidence: Evidence, first: int, times: int = 1, ahead: int = 0) -> list[float]:
    """Returns B's rates from a step on, if each at step k is A's at step times x k + ahead, as far as A went; else an empty list.

    Args:
        evidence: The evidence of the step.
        first: The first step to compare.
        times: How many times as fast as A's B's schedule runs.
        ahead: How many steps it is ahead.
    """
    a, b = evidence.a.rates, evidence.b.rates
    places = {k: times * k + ahead for k in range(first, len(b)) if times * k + ahead < len(a)}
    are_same = _rates(evidence) is not None and all(near(b[k], a[place]) for k, place in places.items())
    return [b[k] for k in places] if are_same else []


def _late(evidence: Evidence) -> Words | None:
    """Checks that B's rates from here on are A's of one step earlier. One rate is not enough, as B may just keep its rate."""
    step = evidence.step
    return {"step": str(step)} if step > 0 and len({*_common(evidence, step, ahead=-1)}) > 1 else None


def _schedule(evidence: Evidence) -> Words | None:
    """Checks that B's rate at step k is A's at step N k, as far as A went.

    If only few rates show it, only A may keep each rate for N steps, or N must be a number of processes or micro-batches.
    """
    a, b, known = evidence.a.rates, evidence.b.rates, [number for number, _ in _factors(evidence)]
    for times in range(2, MOST_RUN_AHEAD + 1):
        rates = _common(evidence, 0, times)
        if len(rates) > evidence.step and (num := len({*rates})) > 1:
            is_kept, is_so_in_b = (all(near(rate, own[k - k % times]) for k, rate in enumerate(own)) for own in (a, b))
            if num > LEAST_RATES or (is_kept and not is_so_in_b) or times in known:
                return {"times": str(times)}
    return None


def _restarted(evidence: Evidence) -> Words | None:
    """Checks that B's rates begin anew at this step: with its own first rates, or with A's first ones if B is resumed."""
    a, b, step = evidence.a, evidence.b, evidence.step
    if _rates(evidence) is None:
        return None
    if a.earlier:
        times = _times_of_first(a, b)
        spelt = "" if times is None or near(times, 1.0) else f"{spell(times)} times "
        return None if times is None else {"step": str(step), "times": spelt, "who": "the other run"}
    common = [*zip(b.rates, b.rates[step:] if step else (), strict=False)]
    is_same = all(near(one, other) for one, other in common) and len(common) > LEAST_RATES
    is_changing = len({one for one, _ in common}) > LEAST_RATES  # constant rates are no schedule
    return {"step": str(step), "times": "", "who": "it"} if is_same and is_changing else None


def _times_of_first(whole: Side, resumed: Side) -> float | None:
    """Returns the factor of a resumed run's rates over the first rates of a whole run; None if there is not just one.

    If the optimizer is restored and the schedule is not, the run begins at the optimizer's rate. The schedule then multiplies
    that rate, or computes the next one anew.
    """
    common = [*zip([*(rate for rate, _ in whole.earlier), *whole.rates], resumed.rates, strict=False)]
    if len(common) <= LEAST_RATES:
        return None
    # This holds for constant rates as well, as those of the whole run are not all constant.
    if all(near(one, other) for one, other in common):
        return 1.0
    (first, begun), *rest = common
    if all(near(one * begun, other * whole.rates[0]) for one, other in zip(whole.rates, resumed.rates, strict=False)):
        return None  # only the initial rate differs
    kept = [1.0, begun / first] if first else [1.0]
    found = (times for times in kept if all(near(times * one, other) for one, other in rest))
    return next(found, None) if len({one for one, _ in rest}) > 1 else None


def _shifted(evidence: Evidence) -> Words | None:
    """Checks that B's rate, from this step on, is A's of some steps later, unless one factor relates all rates."""
    a, b = evidence.a.rates, evidence.b.rates
    if a and b and all(near(one * b[0], other * a[0]) for one, other in zip(a, b, strict=False)):
        return None
    for ahead in range(1, MOST_RUN_AHEAD + 1):
        if len({*_common(evidence, evidence.step, ahead=ahead)}) > LEAST_RATES:
            return {"step": str(evidence.step), "ahead": count(ahead, "step")}
    return None


def _other_scalar(evidence: Evidence) -> Words | None:
    """Finds hyper-parameters whose values differ."""
    a, b = evidence.a.scalars, evidence.b.scalars
    names = [name for name in a if name in b and name not in COMPUTED and not same_number(a[name], b[name])]
    words = other_values(a, b, names)
    return {"what": ", ".join(words[:4])} if words else None


def other_values(one: Mapping[str, float], other: Mapping[str, float], differing: Iterable[str]) -> list[str]:
    """Returns the values of hyper-parameters in two runs, each as a clause; groups with equal values share one clause.

    Args:
        one: The scalars of a step of A.
        other: The scalars of a step of B.
        differing: The names of the scalars that differ.
    """
    alike = collections.defaultdict[tuple[str, str], list[int]](list)
    for key in differing:
        name, place = place_of(key)
        alike[name, f"is {one[key]:.6g} in A and {other[key]:.6g} in B"].append(place)
    numbers = [1 + max((place_of(key)[1] for key in each), default=0) for each in (one, other)]
    said = []
    for (name, values), places in alike.items():
        has_groups = max(numbers) > 1 and name not in OF_GRADIENTS
        of = f" of group{'s' if places[1:] else ''} {few([str(place) for place in places])}" if has_groups else ""
        said.append(f"{name}{of} {values}")
    if said and numbers[0] != numbers[1]:
        said.append(f"A has {numbers[0]} and B {numbers[1]} groups of parameters")
    return said


def place_of(name: str) -> tuple[str, int]:
    """Splits the name of a scalar into the name of the hyper-parameter and the place of its group.

    Args:
        name: The name as in a step: "lr" for the first group, "lr/1" for the second.
    """
    base, _, place = name.rpartition("/")
    return (base, int(place)) if base and place.isdigit() else (name, 0)


def same_number(one: float, other: float) -> bool:
    """Returns whether two hyper-parameters are equal up to the precision of float32.

    Args:
        one: One of the two.
        other: The other one.
    """
    return one == other or abs(one - other) <= 1e-6 * abs(one) or (math.isnan(one) and math.isnan(other))


HYPER = (
    Mistake(
        "rate_by_processes",
        ("hyper-parameters",),
        _rate_by_ranks,
        "B's learning rate is {ratio} times A's, as when one of the two is multiplied or divided by {what}",
        "huggingface/accelerate#2142",
    ),
    Mistake(
        "late_rate",
        ("hyper-parameters",),
        _late,
        "from step {step} on, {b} uses the learning rate that {a} used one step earlier: its schedule lags by one step",
        "huggingface/transformers#34053",
        of_step="it used the learning rate of the step before: the schedule lags by one step",
    ),
    Mistake(
        "schedule_restarted",
        ("hyper-parameters",),
        _restarted,
        "from step {step} on, {b} uses {times}the learning rates with which {who} began: its schedule has started "
        "over, or is missing, as when a resumed run does not restore its state",
    ),
    Mistake(
        "schedule_runs_n_times",
        ("hyper-parameters",),
        _schedule,
        "{b}'s schedule runs {times} times as fast: its learning rate at step k is {a}'s at step {times} x k",
        "huggingface/accelerate#2142",
        of_step="the schedule runs {devices} times per step",
    ),
    Mistake(
        "schedule_shifted",
        ("hyper-parameters",),
        _shifted,
        "from step {step} on, {b} uses the learning rate that {a} uses {ahead} later: its schedule began earlier, "
        "or noticed earlier that a loss no longer falls",
        "microsoft/Swin-Transformer#277",
    ),
    Mistake("other_hyperparameter", ("hyper-parameters",), _other_scalar, "{what}"),
)
