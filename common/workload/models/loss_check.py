"""Finds the loss of a user's model from its return value and its targets; refuses outputs that the loss cannot take."""

import dataclasses

import numpy as np

from samestep.common.errors import ConfigError, unknown
from samestep.common.workload.declaration import CLASSES_FIRST, CLASSES_LAST, LOSSES, RETURNED, Model
from samestep.common.workload.models.dtypes import check_outputs
from samestep.common.workload.models.spec import MOST_IDS
from samestep.common.workload.reductions import EXAMPLES, MEAN, OWN, SUM, TARGETS, own_divisor

USER_LOSS = "own"
_INSTEAD = {
    (): "if that is the mean over the examples, add reduction='mean', and if it is a sum, reduction='sum'",
    EXAMPLES: "if each is for one example, add reduction='examples'",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundLoss:
    """The loss of a user's model.

    Attributes:
        name: As in `Description.loss`.
        reduction: As in `ModelFacts`.
        classes: The number of classes, if its targets are classes.
        ignores: Whether targets below 0 do not count.
    """

    name: str
    reduction: str = TARGETS
    classes: int | None = None
    ignores: bool = False


def reduction_of(model: Model) -> str:
    """Returns the name of the reduction that computes a batch's loss from the losses of its parts."""
    if callable(model.reduction):
        return OWN
    return model.reduction or (MEAN if model.loss == RETURNED else TARGETS)


def part_losses(model: Model, source: str, losses: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Returns the losses of some examples in the form whose sum or, if so declared, mean is the loss of a batch.

    Args:
        model: The declaration.
        source: The source of the model, for messages.
        losses: The user's own losses for the examples, or the model's.
        targets: Their targets.
    """
    divide = model.reduction if model.loss == RETURNED else ""
    return losses * own_divisor(divide, source, targets) if callable(divide) else losses


def find_loss(
    model: Model, source: str, outputs: np.ndarray, losses: np.ndarray | None, targets: np.ndarray, tried: int
) -> FoundLoss:
    """Finds the loss of a model.

    Args:
        model: The declaration.
        source: The source of the model, for messages.
        outputs: The outputs of the first examples.
        losses: The user's own losses for them, or the model's; None if the loss is one of ours.
        targets: All training targets.
        tried: The number of examples that the outputs belong to.

    Raises:
        ConfigError: The loss cannot take the outputs, the losses or the targets.
    """
    if callable(model.reduction):
        own_divisor(model.reduction, source, targets[:tried])
    if losses is not None:
        _check_losses(model, source, losses, targets[:tried])
        classes = None if targets.dtype.kind == "f" else MOST_IDS
        return FoundLoss(
            name=RETURNED if model.loss == RETURNED else USER_LOSS, reduction=reduction_of(model), classes=classes
        )
    if model.loss not in LOSSES:
        raise unknown("loss", str(model.loss), (*LOSSES, RETURNED), f"It is given in {source}.")
    if reduction_of(model) == MEAN:
        raise ConfigError(
            f"--model {source}: reduction='mean' says that a function returns one number; {model.loss} has the loss of each "
            f"target: leave the reduction out."
        )
    name, classes = _check_outputs(str(model.loss), source, outputs, targets[:tried])
    is_ignoring = classes is not None and bool((targets < 0).any())
    if is_ignoring and (name == "binary_cross_entropy" or model.reduction):
        raise ConfigError(
            f"--model {source}: targets go down to {targets.min()}; only cross_entropy, without a reduction, leaves out those "
            f"below 0: give loss={{'torch': function}} and what its sum is divided by as reduction=function."
        )
    return FoundLoss(name=name, reduction=reduction_of(model), classes=classes, ignores=is_ignoring)


def _check_losses(model: Model, source: str, losses: np.ndarray, targets: np.ndarray) -> None:
    """Refuses losses that do not have the form from which the reduction computes the loss of a batch."""
    reduction, got = reduction_of(model), list(losses.shape)
    wanted = {
        TARGETS: ("one loss for each target", list(targets.shape)),
        EXAMPLES: ("one loss for each example", [len(targets)]),
        MEAN: ("one number", []),
    }.get(reduction, ("", got))
    if model.loss == RETURNED and reduction not in (MEAN, SUM, OWN):
        raise ConfigError(
            f"--model {source}: a returned loss is one number; reduction is 'mean', 'sum', or a function of the targets that "
            f"counts what the mean is over."
        )
    if got != wanted[1]:
        instead = _INSTEAD.get(() if not got else EXAMPLES if got == [len(targets)] else TARGETS, "")
        raise ConfigError(
            f"--model {source}: the loss returns {got}, not {wanted[0]} {wanted[1]}{f'; {instead}' if instead else ''}."
        )
    check_outputs(f"--model {source}: the loss", str(losses.dtype))


def _check_outputs(loss: str, source: str, outputs: np.ndarray, targets: np.ndarray) -> tuple[str, int | None]:
    """Returns the name of one of our losses, and the number of classes if there are any."""
    got, wanted = list(outputs.shape), list(targets.shape)
    if loss.startswith("cross_entropy"):
        return _check_classes(loss, source, got, targets)
    if got != wanted:
        raise ConfigError(
            f"--model {source}: {loss} takes outputs shaped like the targets; for {len(targets)} examples the model "
            f"returns {got}, and the targets are {wanted}."
        )
    return loss, 2 if loss == "binary_cross_entropy" else None


def _check_classes(loss: str, source: str, got: list[int], targets: np.ndarray) -> tuple[str, int]:
    """Returns the loss for the dim in which the outputs have their classes, and the number of classes."""
    wanted = list(targets.shape)
    fits = {
        CLASSES_LAST: loss != CLASSES_FIRST and got[:-1] == wanted,
        CLASSES_FIRST: loss != CLASSES_LAST and len(got) > 2 and [got[0], *got[2:]] == wanted,
    }
    if targets.dtype.kind == "f" or not any(fits.values()):
        takes = {CLASSES_LAST: "[..., classes]", CLASSES_FIRST: "[examples, classes, ...]"}
        shapes = takes.get(loss) or " or ".join(takes.values())
        raise ConfigError(
            f"--model {source}: {loss} takes outputs {shapes} and whole targets [...]; for {len(targets)} examples the model "
            f"returns {got}, and the targets are {targets.dtype} {wanted}."
        )
    if all(fits.values()):
        raise ConfigError(
            f"--model {source}: for {len(targets)} examples the model returns {got}, whose classes may be the second dim or the "
            f"last; say loss={CLASSES_FIRST!r} or loss={CLASSES_LAST!r}."
        )
    return ("cross_entropy", got[-1]) if fits[CLASSES_LAST] else (CLASSES_FIRST, got[1])
