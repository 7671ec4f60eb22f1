"""Turns what a user's model returns into what its loss takes: the outputs, all that it returns, or its own loss."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.models.dtypes import check_outputs
from samestep.common.workload.models.returned import logits_of, loss_of, main_of

Finish = Callable[[object, int], object]
"""(what a model returned, number of examples) -> what its loss takes."""


def is_tensor(value: object) -> bool:
    """Returns whether something is a tensor."""
    return bool(tf.is_tensor(value))


def finish_outputs(model: Model) -> Finish:
    """Returns the function that turns what a model returns into what its loss takes.

    Args:
        model: The declaration of the model.
    """
    return functools.partial(_finish, model.loss)


def _finish(loss: object, outputs: object, rows: int) -> object:
    if isinstance(loss, Mapping):
        check_outputs("the model", dtype_of(main_outputs(outputs)))
        return tf.nest.map_structure(_wide, outputs)
    is_loss = loss == RETURNED
    found = (loss_of if is_loss else logits_of)(outputs, is_tensor)
    check_outputs("the model's loss" if is_loss else "the model", dtype_of(found))
    # Repeated for each example, because every row splits and gathers what belongs to examples.
    return tf.fill([rows], _wide(found)) if is_loss else _wide(found)


def _wide(value: Any) -> Any:
    """Casts a tensor of two bytes a number to four: losses never have two bytes."""
    return tf.cast(value, tf.float32) if tf.is_tensor(value) and value.dtype in (tf.bfloat16, tf.float16) else value


def main_outputs(outputs: object) -> tf.Tensor:
    """Returns the outputs that a metric is given, for each example."""
    return main_of(outputs, is_tensor)


def dtype_of(tensor: object) -> str:
    """Names a dtype, such as "float32"."""
    return tf.convert_to_tensor(tensor).dtype.name
