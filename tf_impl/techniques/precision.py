"""Mixed precision: products take and return two bytes a number, from variables in float32.

Both factors of a product are cast where the replica computes it, and its result is cast back: sums of residuals, activations,
norms, softmax and losses are in float32. The gradient of a cast is a cast, so variables get gradients in float32.

References:
    Micikevicius et al., arXiv 1710.03740 (float32 master weights).
"""

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.models.layers import Product

TYPES = {"bf16": tf.bfloat16}


def product_of(run: Run) -> Product:
    """How a run multiplies: in two bytes if it asks for that."""
    precision = run.techniques.precision
    return Product(None if precision is None else TYPES[precision])
