"""The dtypes of a script: the dtype of its matrix products, and the float64 mode.

The float64 mode runs a script that was written for float32 in float64, without changing a line.
Keras casts what a layer is given, so `fit` needs nothing but float64 as the default. Policies that compute in a narrower dtype
become float64 as well. A layer whose own dtype is named, and code of TensorFlow that names float32, cannot be changed.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.dtype_policies import dtype_policy


def rounding_of_products(dtype: np.dtype) -> float:
    """Returns the unit roundoff of products with weights of a dtype, as Keras' policy has it."""
    computed = {"mixed_float16": 2.0**-10, "mixed_bfloat16": 2.0**-7}.get(keras.config.dtype_policy().name)
    return (computed or float(np.finfo(dtype).eps)) / 2


def dtype_of_products() -> str:
    """Returns the low-precision dtype of products under Keras' policy; "" if there is none."""
    dtype = keras.config.dtype_policy().compute_dtype
    return dtype if dtype in ("bfloat16", "float16") else ""


def use_float64() -> None:
    """Makes float64 the default of all layers."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    for module in (keras.config, keras.mixed_precision):
        for name in ("set_dtype_policy", "set_global_policy", "set_floatx"):
            if name in vars(module):
                setattr(module, name, _ignore)
    dtype_policy.set_dtype_policy = _ignore
    for name in ("normal", "truncated_normal", "uniform"):
        setattr(backend.random, name, _drawn_in_float32(getattr(backend.random, name)))


def _drawn_in_float32(draw: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Wraps a draw so it gives the numbers of float32, which keeps initial weights; TensorFlow draws others in float64."""

    @functools.wraps(draw)
    def drawn(*arguments: Any, dtype: Any = None, **keywords: Any) -> tf.Tensor:
        wanted = keras.backend.standardize_dtype(dtype)
        is_wide = wanted == "float64"
        found = draw(*arguments, dtype="float32" if is_wide else dtype, **keywords)
        return tf.cast(found, wanted) if is_wide else found

    return drawn


def _ignore(policy: object) -> None:
    """Replaces the functions that would choose another dtype."""
