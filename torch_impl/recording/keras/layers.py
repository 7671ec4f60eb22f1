"""The variables of Keras models on PyTorch, in torch's layout. Keras is not imported, as it may have another backend."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import nn

from samestep.common.steps.keras.variable_layout import KerasLayout, layout_of
from samestep.common.steps.record import RecordedTensor
from samestep.torch_impl.recording.pieces import dtype_of

GIVEN = "_samestep_given"
"""The attribute of a parameter that holds the gradient given to an update, which Keras may have clipped or accumulated."""


def keras_on_torch() -> ModuleType | None:
    """Returns Keras if it has been fully imported and runs on PyTorch; otherwise None."""
    keras = sys.modules.get("keras")
    if keras is None or "Model" not in vars(keras):  # among the last names that its package defines
        return None
    return keras if keras.backend.backend() == "torch" else None


def is_keras(module: nn.Module) -> bool:
    """Returns whether a module is a layer of Keras."""
    keras = keras_on_torch()
    return keras is not None and isinstance(module, keras.layers.Layer)


def is_symbolic(given: object) -> bool:
    """Returns whether a call of a Keras layer only connects it to other layers, while a model is built.

    Args:
        given: The arguments of the call.
    """
    keras = keras_on_torch()
    return keras is not None and any(isinstance(each, keras.KerasTensor) for each in keras.tree.flatten(given))


def keras_tensors(root: Any) -> Iterator[tuple[RecordedTensor, torch.Tensor, KerasLayout]]:
    """Yields the variables of a Keras model that hold floating-point numbers.

    Args:
        root: The model.

    Returns:
        For each variable, its description in the record, its parameter or buffer, and its layout.
    """
    seen: set[int] = set()
    for layer in root._flatten_layers():
        kind, equation = type(layer).__name__, vars(layer).get("equation", "")
        own = [(each, "parameter") for each in layer._trainable_variables]
        own += [(each, "buffer") for each in layer._non_trainable_variables]
        for variable, role in own:
            value = variable.value
            if id(value) in seen or not value.is_floating_point():
                continue
            seen.add(id(value))
            layout = layout_of(kind, variable.path.rpartition("/")[2], tuple(value.shape), equation)
            is_trained = role == "parameter" and bool(variable.trainable)
            yield RecordedTensor(variable.path, dtype_of(value), layout.piece, role, kind, is_trained), value, layout


def in_layout(tensor: torch.Tensor, layout: KerasLayout) -> torch.Tensor:
    """Returns a view of a variable, or of its gradient, in torch's layout.

    Args:
        tensor: The variable or gradient.
        layout: Its layout in Keras.
    """
    return tensor.detach().permute(layout.order).reshape(layout.shape)
