"""Casts of Keras layers to float32 leave float64 as it is: the proof of a step needs all digits.

The norms of many published models compute in float32 whatever they are given, so their gradients hold seven digits, and those of
two halves of a batch do not add up to those of the batch. In other dtypes such a layer does what it says.
"""

import functools

SINGLE, DOUBLE = "float32", "float64"


def install() -> None:
    """Has `keras.ops.cast`, which models call, keep float64 where that is Keras' default dtype."""
    import keras  # here: our own models do without it

    plain = keras.ops.cast
    if hasattr(plain, "__wrapped__"):
        return
    named = keras.backend.standardize_dtype

    @functools.wraps(plain)
    def cast(x, dtype):
        held = getattr(x, "dtype", None)
        is_double = held is not None and keras.config.floatx() == DOUBLE == named(held)
        return x if is_double and named(dtype) == SINGLE else plain(x, dtype)

    keras.ops.cast = cast
