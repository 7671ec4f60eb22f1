"""Finds Keras networks that have the shapes of a trained one and no optimizer: averages, teachers, target networks.

A script may never train on them and still save them. Without them in the record, a difference in how they follow the weights
would go unseen.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol


class Variable(Protocol):
    """A variable of Keras."""

    shape: Sequence[int]
    path: str
    value: object


class KerasLayer(Protocol):
    """A layer of Keras."""

    def _flatten_layers(self) -> Iterable["KerasLayer"]: ...


class AveragingOptimizer(Protocol):
    """An optimizer of Keras."""

    use_ema: bool
    _trainable_variables: Sequence[Variable]
    _model_variables_moving_average: Sequence[Variable | None]


def find_followers(
    layers: Iterable[KerasLayer],
    wanted: Collection[int],
    called: Collection[KerasLayer],
    value_of: Callable[[Variable], object],
    has_value: Callable[[Variable], bool],
) -> list[KerasLayer]:
    """Returns the layers that have the shapes of a part of a trained layer, but no trained variable.

    They belong to no other layer, or to one that is not itself called in training, such as a model whose `train_step` calls one
    of its layers and has another one follow it. A layer whose variables have no values yet is left out.

    Args:
        layers: All layers of the process.
        wanted: The ids of the objects that hold the values of the trained variables.
        called: The layers that are called in training.
        value_of: Returns the object that holds the values of a variable.
        has_value: Returns whether a variable has values yet.
    """
    layers = [each for each in layers if "_layers" in vars(each)]
    inner = {id(each) for layer in layers for each in (*vars(layer)["_layers"], getattr(layer, "_functional", None))}
    trained, idle, waiting = list[KerasLayer](), list[KerasLayer](), [each for each in layers if id(each) not in inner]

    def is_trained(layer: KerasLayer) -> bool:
        return any(id(value_of(each)) in wanted for each in _weights(layer))

    while waiting:
        layer = waiting.pop(0)
        if not is_trained(layer):
            idle.append(layer)
            continue
        trained.append(layer)
        if layer not in called:
            waiting += vars(layer)["_layers"]
    ready = [each for each in idle if (own := [*_weights(each)]) and all(map(has_value, own))]
    if not ready:
        return []
    shapes = {_shapes(part) for each in trained for part in each._flatten_layers() if is_trained(part)}
    return [each for each in ready if _shapes(each) in shapes]


def averages_of(optimizer: AveragingOptimizer) -> Iterator[tuple[Variable, Variable]]:
    """Yields the variables of an optimizer, each with its average, if the optimizer keeps averages (`use_ema`).

    Args:
        optimizer: A Keras optimizer that has been built; for one that scales the loss, the inner one.
    """
    if optimizer.use_ema:
        pairs = zip(optimizer._trainable_variables, optimizer._model_variables_moving_average, strict=True)
        yield from ((variable, average) for variable, average in pairs if average is not None)


def _weights(layer: KerasLayer) -> Iterator[Variable]:
    for each in layer._flatten_layers():
        yield from vars(each).get("_trainable_variables", ())


def _shapes(layer: KerasLayer) -> tuple[Sequence[int], ...]:
    return tuple(tuple(each.shape) for each in _weights(layer))
