"""Float64 mode: runs a script in float64 that was written for float32, without a changed line.

Keras casts what a layer is given, so `fit` needs nothing but float64 as the default. Policies that compute in a narrower dtype
become float64 as well. A layer whose own dtype is named, and code of TensorFlow that names float32, cannot be changed.
"""

import keras
from keras.src.dtype_policies import dtype_policy


def use_float64() -> None:
    """Makes float64 the default of all layers."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    for module in (keras.config, keras.mixed_precision):
        for name in ("set_dtype_policy", "set_global_policy", "set_floatx"):
            if name in vars(module):
                setattr(module, name, _ignore)
    dtype_policy.set_dtype_policy = _ignore


def _ignore(policy: object) -> None:
    """Takes the place of what would choose another dtype."""
