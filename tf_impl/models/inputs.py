"""What a model is given: a tensor, or several by name."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from samestep.common.workload.data.several import each

Inputs = tf.Tensor | Mapping[str, tf.Tensor]
"""Several go to a user's model as one mapping."""


def as_inputs(array: np.ndarray) -> Inputs:
    """Makes inputs of a batch's array.

    Args:
        array: [batch, ...]; its records may hold several arrays.
    """
    return each(array, tf.constant)
