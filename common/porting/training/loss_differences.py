"""Why the losses of equal outputs differ: how they are averaged, or what only a Keras model adds."""

from collections.abc import Mapping

import numpy as np

from samestep.common.porting.training.losses import explain_each, known_losses
from samestep.common.porting.words import relative

_SAME = 1e-9
"""The largest relative error of a known loss that fits."""
_FITS = 1e-4
"""The largest relative error of a ratio that counts as a whole number."""
_EXPLAINED = 1e-3
"""The share of a deviation that its cause may leave unexplained."""


def explain_loss(
    losses: tuple[float, float],
    each: tuple[np.ndarray, np.ndarray],
    outputs: np.ndarray,
    targets: np.ndarray,
    added: Mapping[str, float],
    bound: float,
) -> str:
    """Explains why the loss of equal outputs differs, if something is added to it or it is averaged differently.

    Args:
        losses: The losses of torch and of TensorFlow.
        each: The losses of single targets or examples on both sides; empty where they are not known.
        outputs: The outputs of the model.
        targets: The targets of the batch.
        added: Name -> an added loss of the Keras model; torch has none.
        bound: How far two losses may be apart, relative.
    """
    one, other = losses
    said = []
    without = other - sum(added.values())
    if abs(one - without) < abs(one - other):
        found = [name for name, value in added.items() if relative(other, other - value)]
        said.append(f"{' and '.join(found)} {'is' if len(found) == 1 else 'are'} in the loss of Keras only")
        other = without
    if relative(one, other) > bound:
        cause = _computed(one, other, outputs, targets) or explain_each(each, outputs, targets)
        cause = cause or _averaged(one, other, outputs)
        said += [f"without that, {cause}" if said and cause else cause] if cause else []
    return "; ".join(said)


def is_explained(one: float, other: float, added: Mapping[str, float]) -> bool:
    """Returns whether the Keras model's added losses explain nearly all of the difference, however small that is.

    Args:
        one: Torch's loss.
        other: TensorFlow's.
        added: Name -> an added loss of the Keras model.
    """
    return abs(one - (other - sum(added.values()))) < _EXPLAINED * abs(one - other)


def _computed(one: float, other: float, outputs: np.ndarray, targets: np.ndarray) -> str:
    """Says why two losses differ, if both are known functions of outputs and targets."""
    found = [
        next((name for name, value in known_losses(outputs, targets, loss) if relative(value, loss) <= _SAME), "")
        for loss in (one, other)
    ]
    return f"the loss is {found[0]} in {{a}}, {found[1]} in {{b}}" if all(found) and found[0] != found[1] else ""


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
