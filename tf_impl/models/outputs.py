"""What a user's model returns, made what its loss takes: the outputs, all that it returns, or its own loss."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.models.dtypes import check_outputs
from samestep.common.workload.models.returned import logits_of, loss_of, main_of

Finish = Callable[[object, int], object]
"""(what a model returned, of how many examples) -> what its loss takes."""


def is_tensor(value: object) -> bool:
    """Returns whether something is a tensor."""
    return bool(tf.is_tensor(value))


def finish_outputs(model: Model) -> Finish:
    """Returns the function that turns what a model returns into what its loss takes.

    Args:
        model: Its declaration.
    """
    if isinstance(model.loss, Mapping):
        return _finish_all
    return _finish_loss if model.loss == RETURNED else _finish_logits


def _finish_logits(outputs: object, rows: int) -> object:
    logits = logits_of(outputs, is_tensor)
    check_outputs("the model", dtype_of(logits))
    return _wide(logits)


def _finish_loss(outputs: object, rows: int) -> object:
    """Returns the loss once for each example, as every row takes apart and gathers what is of each example."""
    loss = _wide(loss_of(outputs, is_tensor))
    check_outputs("the model's loss", dtype_of(loss))
    return tf.fill([rows], loss)


def _finish_all(outputs: object, rows: int) -> object:
    check_outputs("the model", dtype_of(main_outputs(outputs)))
    return tf.nest.map_structure(_wide, outputs)


def _wide(value: object) -> object:
    """Returns a tensor in two bytes in four: losses never have two bytes."""
    return tf.cast(value, tf.float32) if tf.is_tensor(value) and value.dtype in (tf.bfloat16, tf.float16) else value


def main_outputs(outputs: object) -> tf.Tensor:
    """Returns the outputs of each example that a metric is given."""
    return main_of(outputs, is_tensor)


def dtype_of(tensor: object) -> str:
    """Names a dtype, such as "float32"."""
    return tf.convert_to_tensor(tensor).dtype.name
