"""What differs after the loss: the gradients and the update of the parameters."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from samestep.common.porting.array_layouts import Both
from samestep.common.porting.case import Hyper, PortCase
from samestep.common.porting.changes import CHANGES
from samestep.common.porting.matching.pairing import Pair
from samestep.common.porting.training.configurations import added_to_norms
from samestep.common.porting.training.roots import explain_root

LEAST_SHARE = 1e-3
"""The smallest scale of a gradient, as a share of the largest one, because a true zero consists of rounding alone."""
_ZERO = 1e-12
"""A gradient below this share of the largest one is rounding alone."""
_FITS = 1e-4
"""The largest relative error of a formula that explains an update."""
_TWICE = 0.1
"""The largest relative error of a step that counts as doubled; weight decay is not doubled."""
_AROUND = 1.01
"""The largest deviation of a step, in multiples of what is added to the clipping norm, that this addition explains."""
ADDED_TO_NORM = "where it clips by a norm, {a} divides by that norm plus 1e-06, {b} by the norm itself"
CONSTANT = 1e-7
"""The relative change of an update whose learning rate passed through float32."""


def gradients(pair: Pair, case: PortCase) -> list[Both]:
    """Returns the gradients of matched parameters, torch's in TensorFlow's layout.

    Args:
        pair: The parameters.
        case: The port.
    """
    if pair.is_buffer:
        return []
    change, ours = CHANGES[pair.change], [case.source.gradients[held.neutral] for held in pair.source]
    if change.is_summed:  # the gradient of each is that of the sum
        ours = [ours[0], np.zeros_like(ours[0])]
    made = change.make(ours, [held.shape for held in pair.target])
    return [(array, case.target.gradients[held.neutral]) for array, held in zip(made, pair.target, strict=True)]


def deviation(both: Both, largest: float) -> float:
    """Returns how far two gradients are apart, relative to their largest element, or to a share of the largest of all.

    Args:
        both: The gradients of torch and of TensorFlow.
        largest: The largest element of all gradients.
    """
    one, other = both
    size = max(np.abs(one).max(initial=0.0), np.abs(other).max(initial=0.0))
    if size <= _ZERO * largest < np.inf:
        return 0.0  # a bias before a normalization has a gradient of zero, but for the rounding of terms that cancel
    scale = max(size, LEAST_SHARE * largest, 1e-300)
    found = float(np.abs(one - other).max(initial=0.0) / scale)
    return found if np.isfinite(found) else np.inf


# --- gradients --------------------------------------------------------------------------------------------------------


def explain_gradient(pair: Pair, both: Sequence[Both]) -> str:
    """Explains why the gradients of a parameter differ although the forward passes agree.

    Args:
        pair: The parameter.
        both: Its gradients.
    """
    one, other = both[0]
    if one.ndim == 2:
        rows = np.flatnonzero((np.abs(one - other) > LEAST_SHARE * np.abs(other - one).max()).any(axis=1))
        for frozen, name, trains in ((one, "{a}", "{b}"), (other, "{b}", "{a}")):
            if len(rows) == 1 and not frozen[rows[0]].any():
                return f"{name} does not train row {rows[0]} (padding_idx={rows[0]}), {trains} does"
    for stopped, name in ((one, "{a}"), (other, "{b}")):
        if not stopped.any():
            return f"no gradient reaches it in {name}"
    return ""


# --- the update -------------------------------------------------------------------------------------------------------


def compare_updates(case: PortCase, bound: float, hyper: Mapping[int, str]) -> tuple[Pair, float, str] | None:
    """Finds the first parameter whose update differs although its gradient does not, in its first step or by its settings.

    Args:
        case: The port.
        bound: How far an update may be off, relative.
        hyper: The hyper-parameters that differ, in words, by the id of a pair of parameters.

    Returns:
        The parameter, how far it is off, and the cause; None if all updates agree.
    """
    largest = max(float(np.abs(g).max(initial=0.0)) for g in case.target.gradients.values())
    apart: list[tuple[Pair, float, bool]] = []
    for pair in case.matching.parameters:
        off = _apart(pair, case, largest)
        is_off = off > max(bound, CONSTANT, _blurred(pair, case, largest))
        if is_off or id(pair) in hyper:
            apart.append((pair, off, is_off))
    if not apart:
        return None
    pair, off, is_off = apart[0]
    roles = {one.source[0].neutral.rpartition("/")[2] for one, *_ in apart}
    set_otherwise, seen = hyper.get(id(pair), ""), _explain_update(pair, case, roles) if is_off else ("", "")
    seen = (seen[0], "") if "epsilon" in case.accepted else seen
    if not set_otherwise and off <= _AROUND * added_to_norms(case).get(id(pair), 0.0):
        seen = (ADDED_TO_NORM, "")
    said = [set_otherwise, seen[1]] if set_otherwise else [seen[0] or seen[1]]
    return pair, off, "; ".join(filter(None, said))


def _update(pair: Pair, case: PortCase) -> list[Both]:
    """Returns how far one step moved the parameters, torch's in TensorFlow's layout."""
    (before, before_target), (source, target) = case.weights, (case.source, case.target)
    made = pair.to_target({held.neutral: source.stepped[held.neutral] - before[held.neutral] for held in pair.source})
    theirs = {held.neutral: target.stepped[held.neutral] - before_target[held.neutral] for held in pair.target}
    return [(made[name], theirs[name]) for name in theirs]


def _clear(arrays: Sequence[Both], pair: Pair, case: PortCase, largest: float) -> Iterator[Both]:
    """Yields the elements whose gradient is more than rounding, of the arrays of matched parameters."""
    for (one, other), held in zip(arrays, pair.target, strict=True):
        clear = np.abs(case.target.gradients[held.neutral]) > LEAST_SHARE * largest
        if clear.any():
            yield one[clear], other[clear]


def _apart(pair: Pair, case: PortCase, largest: float) -> float:
    off = 0.0
    for one, other in _clear(_update(pair, case), pair, case, largest):
        size = np.abs(one).max() or np.abs(other).max()
        found = float(np.abs(one - other).max() / max(size, 1e-300))
        off = max(off, found if np.isfinite(found) else np.inf)
    return off


def _blurred(pair: Pair, case: PortCase, largest: float) -> float:
    """Returns the largest error of an element of a gradient, relative to itself: no update moves a step by more than that."""
    both = _clear(gradients(pair, case), pair, case, largest)
    found = (float((np.abs(one - other) / np.abs(other)).max()) for one, other in both)
    return max((each for each in found if each < CONSTANT / LEAST_SHARE), default=0.0)


def _explain_update(pair: Pair, case: PortCase, roles: set[str]) -> tuple[str, str]:
    """Says why two first steps differ: the cause that explains everything, and where Adam's epsilon acts."""
    one, other = (each.ravel() for each in _update(pair, case)[0])
    weight = case.weights[1][pair.target[0].neutral].ravel()
    gradient = case.target.gradients[pair.target[0].neutral].ravel()
    clear = np.abs(gradient) > LEAST_SHARE * np.abs(gradient).max()
    one, other, weight, gradient = one[clear], other[clear], weight[clear], gradient[clear]
    for still, moving, who in ((one, other, "{a}"), (other, one, "{b}")):
        if moving.any() and not still.any():
            return f"{who} does not update it", ""
    if not all(np.isfinite(each).all() and each.any() for each in (one, other)):
        return "", ""
    settings = case.updates(pair)
    bare = tuple(step - _decayed(given, weight) for step, given in zip((one, other), settings, strict=True))
    epsilon = _explain_epsilon(gradient, *bare) or explain_root(settings, gradient, bare)
    if _is_multiple(other - one, weight):
        which = "biases" if roles == {"bias"} else "parameters"
        rate = float((other - one) @ weight / (weight @ weight))
        who = "{b}" if rate < 0 else "{a}"
        return f"weight decay on {which}: {who} shrinks them by {abs(rate):.3g} of their size more", epsilon
    if CHANGES[pair.change].is_summed and _is_multiple(one, other, _TWICE):
        times = float(one @ other / (other @ other))
        said = f"{{a}} has two biases where {{b}} has one; both move, and their sum moves {times:.2g} times as far"
        return said, epsilon
    times = float(other @ one / (one @ one))
    is_multiple = abs(times - 1) > LEAST_SHARE and _is_multiple(other, one)
    return f"{{b}}'s step is {times:.6g} times {{a}}'s" if is_multiple else "", epsilon


def _decayed(settings: Hyper, weight: np.ndarray) -> np.ndarray:
    """Returns how far decoupled weight decay, as in AdamW, alone moves a parameter."""
    rate = next((settings[name] for name in ("lr", "learning_rate") if name in settings), 0.0)
    decay = settings.get("weight_decay") if settings.get("is_decoupled") else None
    return -float(str(rate)) * float(str(decay or 0.0)) * weight


def _explain_epsilon(gradient: np.ndarray, one: np.ndarray, other: np.ndarray) -> str:
    ours, theirs = (_epsilon(gradient, each) for each in (one, other))
    if ours is None or theirs is None or abs(ours - theirs) <= _FITS * max(ours, theirs):
        return ""
    return (
        f"Adam's epsilon acts as {ours:.2g} in {{a}} and as {theirs:.2g} in {{b}}: Keras adds it before the bias "
        "correction, which makes it larger in the first steps"
    )


def _is_multiple(array: np.ndarray, other: np.ndarray, fits: float = _FITS) -> bool:
    """Returns whether an array is a multiple of another one."""
    if not (array.size > 1 and array.any() and other.any()):
        return False
    factor = (array @ other) / (other @ other)
    return bool(np.abs(array - factor * other).max() <= fits * np.abs(array).max())


def _epsilon(gradient: np.ndarray, moved: np.ndarray) -> float | None:
    """Fits Adam's epsilon to its first step, which is rate * gradient / (|gradient| + epsilon); None if it does not fit.

    |gradient| / |step| = |gradient| / rate + epsilon / rate is a line over |gradient|.
    """
    if gradient.size < 3 or not moved.all():
        return None
    ratio, size = np.abs(gradient) / np.abs(moved), np.abs(gradient)
    if not np.isfinite(ratio).all():
        return None
    slope, intercept = np.polyfit(size, ratio, 1)
    fits = np.abs(ratio - slope * size - intercept).max() <= _FITS * ratio.max()
    if not (fits and slope > 0 and intercept < slope * size.max()):
        return None
    return max(float(intercept / slope), 0.0)
