"""The calls of a model while its framework records them, and the arrays of a trace that are made from them."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from samestep.common.porting.model_trace import IS_FUNCTION, LayerCall

Tensor = TypeVar("Tensor")


@dataclasses.dataclass(eq=False)
class TracedCall(Generic[Tensor]):
    """One call of a layer, of the activation that it applies at its end, or of a function.

    Attributes:
        name: The path of the layer, or the place where the function was called.
        kind: The name of the class or of the function.
        settings: The settings that affect the result.
        inputs: The tensors that it was given.
        output: Its first result.
        gradient: The gradient of the loss with respect to its first result, once the backward pass has computed it.
    """

    name: str
    kind: str
    settings: Mapping[str, object]
    inputs: Sequence[Tensor]
    output: Tensor
    gradient: Tensor | None = None


def numbered(name: str, taken: Collection[str]) -> str:
    """Returns a name for a call of a function, numbered if the same layer called it before.

    Args:
        name: The name that all of these calls share.
        taken: The names of the earlier calls.
    """
    count = sum(each.partition(" ")[0] == name for each in taken)
    return f"{name} ({count + 1})" if count else name


def layer_calls(
    trained: Sequence[TracedCall[Tensor]],
    evaluated: Sequence[TracedCall[Tensor]],
    array: Callable[[Tensor], np.ndarray],
) -> tuple[LayerCall, ...]:
    """Returns the calls in training, with the outputs of layers in evaluation if evaluation calls the same layers.

    Args:
        trained: The calls in training.
        evaluated: The calls in evaluation.
        array: Converts a tensor to an array.
    """
    layers, later = ([call for call in calls if IS_FUNCTION not in call.settings] for calls in (trained, evaluated))
    are_same = [call.name for call in layers] == [call.name for call in later]
    outputs = {id(call): other.output for call, other in zip(layers, later, strict=False)} if are_same else {}
    return tuple(
        LayerCall(
            name=call.name,
            kind=call.kind,
            settings=call.settings,
            inputs=tuple(map(array, call.inputs)),
            output=array(call.output),
            evaluated=array(outputs[id(call)]) if id(call) in outputs else None,
            gradient=None if call.gradient is None else array(call.gradient),
        )
        for call in trained
    )
