"""Casts of Keras layers to float32 are to float64 where that is Keras' default: the proof of a step needs all digits.

The norms of many published models compute in float32 whatever they are given, so their gradients hold seven digits, and those of
two halves of a batch do not add up to those of the batch. In other dtypes such a layer does what it says.
"""

import functools

SINGLE, DOUBLE = "float32", "float64"


def install() -> None:
    """Has `keras.ops.cast`, which models call, make float64 where that is Keras' default dtype."""
    import keras  # here: our own models do without it

    plain = keras.ops.cast
    if hasattr(plain, "__wrapped__"):
        return
    named = keras.backend.standardize_dtype

    @functools.wraps(plain)
    def cast(x, dtype):
        held = getattr(x, "dtype", None)
        is_single = held is not None and named(held) == SINGLE  # of a layer that was given that dtype
        is_kept = keras.config.floatx() == DOUBLE and named(dtype) == SINGLE and not is_single
        return plain(x, DOUBLE if is_kept else dtype)

    keras.ops.cast = cast
