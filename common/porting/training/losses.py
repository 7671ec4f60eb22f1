"""Known losses, recognized by their mean over a batch and by how the losses of single targets differ."""

from collections.abc import Iterator

import numpy as np
from scipy import special

_DIGITS = 4
_FITS = 1e-6
"""The largest error of a formula that fits the losses of all targets, relative to the largest loss."""
_MOST_CLASSES = 4
"""The most classes whose weights are listed one by one."""
_TEMPERATURES = (0.05, 0.07, 0.1, 0.2, 0.5, 2.0, 4.0, 5.0, 10.0)
_DELTAS = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 5.0)


def known_losses(outputs: np.ndarray, targets: np.ndarray, loss: float) -> Iterator[tuple[str, float]]:
    """Yields the known losses of a batch; label smoothing has the share that fits best, if that is a round number.

    Args:
        outputs: The outputs of the model.
        targets: The targets: classes, or numbers in the shape of the outputs.
        loss: The loss of the batch.
    """
    if targets.dtype.kind in "iu" and outputs.shape[:-1] == targets.shape:
        yield from _of_classes(outputs, targets, loss)
    if targets.shape == outputs.shape and targets.dtype.kind == "f":
        off = outputs - targets
        size = np.abs(off)
        yield "the mean of squares", float(np.square(off).mean())
        yield "half the mean of squares", float(np.square(off).mean() / 2)
        yield "the root of the mean of squares", float(np.sqrt(np.square(off).mean()))
        yield "the mean absolute deviation", float(size.mean())
        yield "the mean of log-cosh", float((np.logaddexp(off, -off) - np.log(2)).mean())
        for delta in _DELTAS:
            huber = float(np.where(size < delta, np.square(off) / 2, delta * (size - delta / 2)).mean())
            yield f"Huber's with a delta of {delta:g}", huber
            yield f"smooth L1 with a beta of {delta:g}", huber / delta


def _of_classes(outputs: np.ndarray, targets: np.ndarray, loss: float) -> Iterator[tuple[str, float]]:
    kept = (targets >= 0) & (targets < outputs.shape[-1])
    counted = {"": kept} | ({" without class 0": kept & (targets != 0)} if (targets == 0).any() else {})
    passed = {"": outputs, " of outputs that passed a softmax": special.softmax(outputs, axis=-1)}
    passed |= {f" of outputs divided by {t:g}": outputs / t for t in _TEMPERATURES}
    for (which, mask), (name, logits) in ((a, b) for b in passed.items() for a in counted.items()):
        log = special.log_softmax(logits, axis=-1)
        own = np.take_along_axis(log, np.where(mask, targets, 0)[..., None].astype(int), axis=-1)[..., 0]
        for divisor, over in ((mask.size, ""), (mask.sum(), "" if mask.all() else ", the mean over the others")):
            if divisor == 0:
                continue
            plain, spread = (-float(each[mask].sum() / divisor) for each in (own, log.mean(-1)))
            yield f"cross-entropy{which}{name}{over}", plain
            share = round((loss - plain) / (spread - plain), _DIGITS) if spread != plain else 0.0
            if 0 < share < 1:
                said = f"cross-entropy{which}{name}{over} with label smoothing of {share:g}"
                yield said, plain + share * (spread - plain)
    if kept.all():
        hot = np.eye(outputs.shape[-1])[targets]
        for share in (0.0, 0.05, 0.1, 0.2):
            smooth = hot * (1 - share) + share / 2
            each = np.logaddexp(0, outputs) - smooth * outputs
            yield "binary cross-entropy" + (f" with label smoothing of {share:g}" if share else ""), float(each.mean())


def explain_each(both: tuple[np.ndarray, np.ndarray], outputs: np.ndarray, targets: np.ndarray) -> str:
    """Says how the losses of single targets differ, if that depends on their class or on the loss alone.

    Args:
        both: The losses of single targets or examples on both sides.
        outputs: The outputs of the model.
        targets: The targets of the batch.
    """
    one, other = both
    fewer = min(one.ndim, other.ndim)
    one, other = (x.mean(tuple(range(fewer, x.ndim))) if x.ndim > fewer else x for x in (one, other))
    if one.shape != other.shape or one.size < 2 or not np.isfinite([one, other]).all():
        return ""
    if targets.shape == one.shape and targets.dtype.kind in "iu" and (said := _by_class(one, other, targets)):
        return said
    return _by_loss(one, other, outputs)


def _by_class(one: np.ndarray, other: np.ndarray, targets: np.ndarray) -> str:
    """Says which class one side's loss leaves out, or which weights the classes have; "" if neither explains the losses."""
    scale = max(np.abs(one).max(), np.abs(other).max()) * _FITS
    weights: dict[int, float] = {}
    for each in np.unique(targets):
        ours, theirs = one[targets == each], other[targets == each]
        for lost, kept, who in ((ours, theirs, "{a}"), (theirs, ours, "{b}")):
            if not lost.any() and kept.all():
                return f"{who} leaves out the targets that are {each}"
        weights[int(each)] = factor = float(np.vdot(ours, theirs) / max(np.vdot(ours, ours), 1e-300))
        if np.abs(factor * ours - theirs).max() > scale:
            return ""
    if np.ptp(list(weights.values())) <= _FITS:
        return ""
    said = [f"{weights[each]:.4g} times that of class {each}" for each in [*weights][:_MOST_CLASSES]]
    more = ", and so on" if len(weights) > _MOST_CLASSES else ""
    return f"classes have different weights: in {{b}} the loss is {', '.join(said)} in {{a}}{more}"


def _by_loss(one: np.ndarray, other: np.ndarray, outputs: np.ndarray) -> str:
    """Says that one side's loss is focal, or what is added to each loss; "" if neither explains the losses."""
    scale = max(np.abs(one).max(), np.abs(other).max()) * _FITS
    for ours, theirs, who in ((one, other, "{b}"), (other, one, "{a}")):
        missed = -np.expm1(-np.abs(ours))  # one minus the probability of the target
        at = int(missed.argmin())
        if ours.flat[at] and theirs.flat[at] / ours.flat[at] > 0 and 0 < missed.flat[at] < 1:
            gamma = round(float(np.log(theirs.flat[at] / ours.flat[at]) / np.log(missed.flat[at])), _DIGITS)
            if gamma > 0 and np.abs(ours * missed**gamma - theirs).max() <= scale:
                return f"the loss is focal in {who}, with a gamma of {gamma:g}"
        if outputs.shape[:-1] == ours.shape:
            squares = np.square(special.logsumexp(outputs, axis=-1))
            factor = float(np.vdot(squares, theirs - ours) / np.vdot(squares, squares))
            if factor > 0 and np.abs(ours + factor * squares - theirs).max() <= scale:
                return f"{who} adds {factor:.4g} times the square of the logarithm of the sum of exponentials"
    shift = float((other - one).flat[0])
    return f"each loss is {shift:.6g} more in {{b}} than in {{a}}" if np.abs(one + shift - other).max() <= scale else ""
