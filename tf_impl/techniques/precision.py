"""Mixed precision: products take and return two bytes a number, from variables in float32.

Both factors of a product are cast where the replica computes it, and its result is cast back: sums of residuals, activations,
norms, softmax and losses are in float32. The gradient of a cast is a cast, so variables get gradients in float32.

A user's model gets Keras' own policy: each layer casts its inputs and its variables, and returns numbers of two bytes.
What the model returns is cast back.

References:
    Micikevicius et al., arXiv 1710.03740 (float32 master weights); keras.config.set_dtype_policy (Keras 3.15).
"""

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.models.layers import Product

TYPES = {"bf16": tf.bfloat16}


def narrow_type(run: Run) -> tf.DType | None:
    """Returns the type of two bytes that a run computes in; None if it does not."""
    precision = run.techniques.precision
    return None if precision is None else TYPES[precision]


def product_of(run: Run) -> Product:
    """Returns how a run multiplies: in two bytes if it asks for that."""
    return Product(narrow_type(run))
