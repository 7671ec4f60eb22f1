"""Makes layers of Keras that cast to float32 keep float64 inputs in float64: the proof of a step needs all digits of every layer.

The norms and softmaxes of many published models compute in float32 whatever their input, so their gradients have seven digits,
and the gradients of two halves of a batch do not add up to those of the batch. A mask that is cast to float32 cannot be
multiplied by what is in float64, since TensorFlow promotes nothing, so the float32 factor becomes float64. Both hold only in the
processes of a user's model, and only where Keras' default is float64; in other dtypes such a layer does what it says.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

SINGLE, DOUBLE = "float32", "float64"
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_OPERATORS = (*(f"__{side}{name}__" for name in _BINARY for side in ("", "r")), "__lt__", "__le__", "__gt__", "__ge__")


def install() -> None:
    """Has `keras.ops.cast`, layers of a dtype and operators keep float64, where that is Keras' default dtype."""
    import keras  # here: our own models do without it

    plain, policy = keras.ops.cast, keras.DTypePolicy
    if hasattr(plain, "__wrapped__"):
        return
    named, convert = keras.backend.standardize_dtype, policy.convert_input
    is_wide = lambda: keras.config.floatx() == DOUBLE  # noqa: E731

    def is_kept(x: Any, dtype: Any) -> bool:
        held = getattr(x, "dtype", None)
        return held is not None and is_wide() and named(held) == DOUBLE and named(dtype) == SINGLE

    @functools.wraps(plain)
    def cast(x: Any, dtype: Any) -> Any:
        return x if is_kept(x, dtype) else plain(x, dtype)

    @functools.wraps(convert)
    def convert_input(self: Any, x: Any, autocast: bool, dtype: Any) -> Any:
        return x if is_kept(x, dtype) else convert(self, x, autocast, dtype)

    keras.ops.cast, policy.convert_input = cast, convert_input
    for name in _OPERATORS:
        operator = _promoting(getattr(tf.Tensor, name), is_wide)
        for kind in (tf.Tensor, tf.Variable):  # a variable has its own, which calls the one that tensors had before
            setattr(kind, name, operator)


def _promoting(plain: Callable[..., Any], is_wide: Callable[[], bool]) -> Callable[..., Any]:
    """Returns an operator of tensors and variables that takes its operand in float32 as float64 if the other one is."""

    @functools.wraps(plain)
    def operator(one: tf.Tensor | tf.Variable, other: Any) -> Any:
        if tf.is_tensor(other) and {one.dtype, other.dtype} == {tf.float32, tf.float64} and is_wide():
            one, other = tf.cast(one, tf.float64), tf.cast(other, tf.float64)
        return plain(tf.convert_to_tensor(one), other)

    return operator
