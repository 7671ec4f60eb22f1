"""Why the losses of equal outputs differ: how they are averaged, or what only a Keras model adds."""

from collections.abc import Iterator, Mapping

import numpy as np
from scipy import special

from samestep.common.porting.words import relative

_SAME = 1e-9
"""How well a known loss has to fit, relative."""
_DIGITS = 4
_FITS = 1e-4
"""How well a ratio has to be a whole number, relative."""
_EXPLAINED = 1e-3
"""What a cause may leave of a deviation that it explains."""


def explain_loss(
    losses: tuple[float, float], outputs: np.ndarray, targets: np.ndarray, added: Mapping[str, float], bound: float
) -> str:
    """Why the loss of equal outputs differs, if it is by what is added to it, or by how it is averaged.

    Args:
        losses: Torch's loss and TensorFlow's.
        outputs: The outputs of the model.
        targets: What they should be.
        added: What the Keras model adds, by what it is called; torch has no such thing.
        bound: How far two losses may be apart, relative.
    """
    one, other = losses
    said = []
    if is_nearer_without(one, other, added):
        found = [name for name, value in added.items() if relative(other, other - value)]
        said.append(f"{' and '.join(found)} {'is' if len(found) == 1 else 'are'} in the loss of Keras only")
        other -= sum(added.values())
    if relative(one, other) > bound:
        cause = _computed(one, other, outputs, targets) or _averaged(one, other, outputs)
        said += [f"without that, {cause}" if said and cause else cause] if cause else []
    return "; ".join(said)


def is_nearer_without(one: float, other: float, added: Mapping[str, float]) -> bool:
    """Returns whether TensorFlow's loss is nearer to torch's without what the Keras model adds to it.

    Args:
        one: Torch's loss.
        other: TensorFlow's.
        added: What the Keras model adds.
    """
    return bool(added) and abs(one - (other - sum(added.values()))) < abs(one - other)


def is_explained(one: float, other: float, added: Mapping[str, float]) -> bool:
    """Returns whether what the Keras model adds is nearly all of the difference, however small that is.

    Args:
        one: Torch's loss.
        other: TensorFlow's.
        added: What the Keras model adds.
    """
    return abs(one - (other - sum(added.values()))) < _EXPLAINED * abs(one - other)


def _computed(one: float, other: float, outputs: np.ndarray, targets: np.ndarray) -> str:
    """Why two losses differ, if both are known functions of outputs and targets."""
    found = [
        next((name for name, value in _known(outputs, targets, loss) if relative(value, loss) <= _SAME), "")
        for loss in (one, other)
    ]
    return f"the loss is {found[0]} in {{a}}, {found[1]} in {{b}}" if all(found) and found[0] != found[1] else ""


def _known(outputs: np.ndarray, targets: np.ndarray, loss: float) -> Iterator[tuple[str, float]]:
    """Yields the known losses; the share of label smoothing is that which fits best, if it is a round one."""
    if targets.dtype.kind in "iu" and outputs.shape[:-1] == targets.shape:
        for name, logits in (("", outputs), (" of outputs that passed a softmax", special.softmax(outputs, axis=-1))):
            log = special.log_softmax(logits, axis=-1)
            plain = -float(np.take_along_axis(log, targets[..., None].astype(int), axis=-1).mean())
            spread = -float(log.mean())
            yield f"cross-entropy{name}", plain
            share = round((loss - plain) / (spread - plain), _DIGITS) if spread != plain else 0.0
            if 0 < share < 1:
                yield f"cross-entropy{name} with label smoothing of {share:g}", plain + share * (spread - plain)
    if targets.shape == outputs.shape and targets.dtype.kind == "f":
        off = outputs - targets
        yield "the mean of squares", float(np.square(off).mean())
        yield "half the mean of squares", float(np.square(off).mean() / 2)
        yield "the mean absolute deviation", float(np.abs(off).mean())
        yield "Huber's", float(np.where(np.abs(off) < 1, np.square(off) / 2, np.abs(off) - 0.5).mean())
        yield "the mean of log-cosh", float((np.logaddexp(off, -off) - np.log(2)).mean())


def _averaged(one: float, other: float, outputs: np.ndarray) -> str:
    if not (one and other and np.isfinite([one, other]).all()):
        return ""
    for axes, what in (
        ((1,), "over all targets of an example"),
        ((0,), "over the batch"),
        ((0, 1), "over all targets"),
    ):
        count = int(np.prod([outputs.shape[axis] for axis in axes if axis < outputs.ndim]))
        for ratio, small, large in ((other / one, "{a}", "{b}"), (one / other, "{b}", "{a}")):
            if count > 1 and abs(ratio / count - 1) < _FITS:
                if axes == (1,):
                    return f"{small} takes the mean over all targets, {large} over the batch: {count} times as much"
                return f"{small} takes the mean {what}, {large} the sum: {count} times as much"
    return f"{{b}}'s is {other / one:.6g} times {{a}}'s"
