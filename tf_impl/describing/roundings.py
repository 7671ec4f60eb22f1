"""Counts how often the forward pass of a user's model rounds a number to two bytes, for the bound of its verdict."""

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from samestep.common.workload.declaration import Model
from samestep.common.workload.models.findings import TwoBytes
from samestep.tf_impl.models.inputs import Inputs
from samestep.tf_impl.models.user_model import UserModel
from samestep.tf_impl.upstream import watching_operations

PRODUCTS = (
    *("MatMul", "BatchMatMulV2", "Einsum", "Conv1D", "Conv2D", "Conv3D"),
    *("Conv2DBackpropInput", "DepthwiseConv2dNative"),
)
MOVES = (
    *("Reshape", "Transpose", "Squeeze", "ExpandDims", "Identity", "StridedSlice", "Slice", "GatherV2"),
    *("ResourceGather", "Split", "SplitV", "Unpack", "Pack", "ConcatV2", "Fill", "Tile", "Pad", "PadV2", "SelectV2"),
)
"""Operations that only return numbers of their inputs."""


def find_roundings(model: Model, source: str, inputs: Inputs) -> TwoBytes:
    """Builds the model again under Keras' mixed-precision policy, computes some examples, and counts the roundings.

    Args:
        model: The declaration.
        source: Where it is declared, for messages.
        inputs: The examples.
    """
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("mixed_bfloat16")
    given = tf.nest.map_structure(lambda array: tf.cast(array, "float32") if array.dtype.is_floating else array, inputs)
    try:
        built = UserModel(model, source, given)
        with counting() as seen:
            outputs = built.predict(given)
    except Exception as error:
        return TwoBytes(refused=f"it fails under Keras' policy mixed_bfloat16 ({type(error).__name__}: {error})")
    return TwoBytes(roundings=max(map(seen.behind, filter(tf.is_tensor, tf.nest.flatten(outputs)))))


class Roundings:
    """Counts the roundings behind every tensor.

    A computed result in two bytes has one rounding more than the most rounded of its operands. The result of a product has two
    more, because its other factor was rounded as well.
    """

    def __init__(self) -> None:
        """Starts without any counts."""
        self._behind: dict[int, tuple[tf.Tensor, int]] = {}  # kept alive, or another tensor might get the id

    def behind(self, tensor: tf.Tensor) -> int:
        """Returns the most times that any number of a tensor was rounded."""
        return self._behind.get(id(tensor), (tensor, 0))[1]

    def saw(self, operation: str, operands: Sequence[tf.Tensor], results: Sequence[tf.Tensor]) -> None:
        """Counts an operation.

        Args:
            operation: The type of the operation.
            operands: Its operands.
            results: Its results.
        """
        most = max(map(self.behind, operands), default=0)
        own = 2 if operation in PRODUCTS else 0 if operation in MOVES else 1
        for result in results:
            self._behind[id(result)] = result, most + own * (result.dtype == tf.bfloat16)


@contextlib.contextmanager
def counting() -> Iterator[Roundings]:
    """Makes a context that counts the roundings of everything computed in it, inside functions as well."""
    seen, eagerly = Roundings(), tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with watching_operations(seen.saw):
            yield seen
    finally:
        tf.config.run_functions_eagerly(eagerly)
