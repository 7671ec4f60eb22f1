"""The tensors of Keras on PyTorch: trained variables, networks that are not updated, and averages that optimizers keep."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from samestep.common.objects import objects_of
from samestep.common.steps.keras.followers import averages_of, find_followers
from samestep.common.steps.keras.variable_layout import KerasLayout
from samestep.common.steps.record import RecordedTensor
from samestep.torch_impl.recording.keras.layers import GIVEN, in_layout, is_keras, keras_on_torch, keras_tensors
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor


def held_of_keras(root: nn.Module) -> list[TrackedTensor]:
    """Returns the tensors of a layer."""
    return [_held(*each) for each in keras_tensors(root)]


def followers_of_keras(modules: Iterable[Any], called: Sequence[Any]) -> list[Any]:
    """Returns the layers with the same shapes as those called in training, but which are not trained.

    Args:
        modules: All modules.
        called: The outermost modules that were called in training mode.
    """
    if not (layers := [each for each in modules if is_keras(each)]):
        return []
    trained = {id(each) for module in called for each in module.parameters() if each.requires_grad}
    return find_followers(layers, trained, called, _value_of, lambda each: _value_of(each) is not None)


def averages_of_keras(roots: Iterable[nn.Module]) -> Iterator[list[TrackedTensor]]:
    """Yields the averages that each optimizer keeps (`use_ema`).

    Args:
        roots: The outermost modules that are trained.
    """
    keras = keras_on_torch()
    optimizers = [] if keras is None else objects_of(keras.src.optimizers.base_optimizer.BaseOptimizer)
    if not (averages := [[*averages_of(each)] for each in optimizers if each.built and vars(each).get("use_ema")]):
        return
    known = {
        id(value): (tensor, layout) for root in roots if is_keras(root) for tensor, value, layout in keras_tensors(root)
    }
    for pairs in averages:
        yield [
            _held(dataclasses.replace(of[0], name=average.path), average.value, of[1])  # pyrefly: ignore[bad-argument-type]
            for variable, average in pairs
            if (of := known.get(id(variable.value)))
        ]


def _held(tensor: RecordedTensor, value: torch.Tensor, layout: KerasLayout) -> TrackedTensor:
    return TrackedTensor(tensor, value, lambda: in_layout(value, layout), lambda: _gradient_of(value, layout))


def _gradient_of(value: torch.Tensor, layout: KerasLayout) -> torch.Tensor | None:
    """Returns the gradient that an optimizer of Keras or of torch is given."""
    gradient = vars(value).get(GIVEN, value.grad)
    return None if gradient is None else in_layout(gradient, layout)


def _value_of(variable: Any) -> Any:
    return vars(variable).get("_value")
