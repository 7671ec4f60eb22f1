"""Makes layers of Keras that cast to float32 keep float64 inputs in float64: the proof of a step needs all digits of every layer.

The norms and softmaxes of many published models compute in float32 for any input, so their gradients have seven digits,
and the gradients of two halves of a batch do not add up to those of the batch. A mask that is cast to float32 cannot be
multiplied by what is in float64, since TensorFlow promotes nothing, so the float32 factor becomes float64. Layers that are given
float32 as their dtype, as the last one of a model for mixed precision is, hold and compute float64, and so do variables that are
made without a dtype. All this holds only in the processes of a user's model, and only where Keras' default is float64; in other
dtypes such a layer does what it says.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

SINGLE, DOUBLE = "float32", "float64"
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_OPERATORS = (*(f"__{side}{name}__" for name in _BINARY for side in ("", "r")), "__lt__", "__le__", "__gt__", "__ge__")


def _is_wide() -> bool:
    import keras  # here: our own models do without it

    return keras.config.floatx() == DOUBLE


@contextlib.contextmanager
def follow_dtype(widened: list[tf.Variable]) -> Iterator[None]:
    """Makes a context in which variables made without `dtype=` are in float64, not float32, where that is the default.

    Args:
        widened: A list to which the variables are added that would otherwise be in float32.
    """

    def create(make: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
        value, casts = arguments["initial_value"], []

        def widen(value: Any) -> tf.Tensor:
            casts.append(plain := tf.convert_to_tensor(value))
            return tf.cast(plain, tf.float64) if plain.dtype == tf.float32 else plain

        if _is_wide() and value is not None and arguments.get("dtype") is None:
            arguments["initial_value"] = (lambda: widen(value())) if callable(value) else widen(value)
        variable = make(**arguments)
        widened.extend([variable] if any(each.dtype == tf.float32 for each in casts) else [])
        return variable

    with tf.variable_creator_scope(create):
        yield


def install() -> None:
    """Makes `keras.ops.cast`, layers with a dtype, and operators keep float64, if that is Keras' default dtype."""
    import keras  # here: our own models do without it

    plain, policy = keras.ops.cast, keras.DTypePolicy
    if hasattr(plain, "__wrapped__"):
        return
    named, convert, parse = keras.backend.standardize_dtype, policy.convert_input, policy._parse_name

    def is_kept(x: Any, dtype: Any) -> bool:
        held = getattr(x, "dtype", None)
        return held is not None and _is_wide() and named(held) == DOUBLE and named(dtype) == SINGLE

    @functools.wraps(plain)
    def cast(x: Any, dtype: Any) -> Any:
        return x if is_kept(x, dtype) else plain(x, dtype)

    @functools.wraps(convert)
    def convert_input(self: Any, x: Any, autocast: bool, dtype: Any) -> Any:
        return x if is_kept(x, dtype) else convert(self, x, autocast, dtype)

    @functools.wraps(parse)
    def parse_name(self: Any, name: Any) -> tuple[str, str]:
        parsed = parse(self, name)
        return (DOUBLE, DOUBLE) if parsed == (SINGLE, SINGLE) and _is_wide() else parsed

    keras.ops.cast, policy.convert_input, policy._parse_name = cast, convert_input, parse_name
    for name in _OPERATORS:
        operator = _promoting(getattr(tf.Tensor, name))
        for kind in (tf.Tensor, tf.Variable):  # a variable has its own, which calls the one that tensors had before
            setattr(kind, name, operator)


def _promoting(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an operator of tensors and variables: its operand in float32 becomes float64 if the other one is."""

    @functools.wraps(plain)
    def operator(one: tf.Tensor | tf.Variable, other: Any) -> Any:
        if tf.is_tensor(other) and {one.dtype, other.dtype} == {tf.float32, tf.float64} and _is_wide():
            one, other = tf.cast(one, tf.float64), tf.cast(other, tf.float64)
        return plain(tf.convert_to_tensor(one), other)

    return operator
