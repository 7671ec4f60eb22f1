"""Projects Keras variables in torch's layout, so records of both frameworks can be compared.

Kernels [in, out] become [out, in], and those of convolutions [height, width, in, out] become [out, in, height, width]. The
kernel of an EinsumDense becomes the matrix of a linear layer. All other variables keep their layout.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from samestep.common.steps.projections import Piece, as_matrix, signs

_KERNELS = ("kernel", "recurrent_kernel", "pointwise_kernel")


@dataclasses.dataclass(frozen=True)
class KerasLayout:
    """The places of a variable's elements in torch's tensor.

    Attributes:
        sizes: The shape of the variable.
        order: The axes of the variable in torch's order.
        rows: How many of these axes, counted from the first, make up the rows of torch's matrix.
        shape: The shape of torch's tensor.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    rows: int
    shape: tuple[int, ...]

    @property
    def piece(self) -> Piece:
        """The piece that is the whole tensor."""
        return Piece.whole(self.shape)

    @property
    def is_turned(self) -> bool:
        """Whether the order of the axes differs from torch's."""
        return self.order != tuple(range(len(self.sizes)))

    def to_torch(self, values: np.ndarray) -> np.ndarray:
        """Returns the variable in torch's layout.

        Args:
            values: The variable's values.
        """
        return values.transpose(self.order).reshape(self.shape)

    def from_torch(self, values: np.ndarray) -> np.ndarray:
        """Returns the variable in Keras' layout.

        Args:
            values: The tensor in torch's layout.
        """
        return values.reshape([self.sizes[axis] for axis in self.order]).transpose(np.argsort(self.order).astype(int))

    def signs(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the signs of torch's rows and columns, in the order of the variable's elements.

        Returns:
            float32 [rows, PROJECTIONS] and [columns, PROJECTIONS].
        """
        rows, columns = as_matrix(self.shape)
        axes = self.order[self.rows :]
        places = np.arange(columns).reshape([self.sizes[axis] for axis in axes]).transpose(np.argsort(axes).astype(int))
        return signs(0, 0, rows), signs(1, 0, columns)[places.ravel()]


def layout_of(kind: str, name: str, sizes: Sequence[int], equation: str = "") -> KerasLayout:
    """Returns the layout of a variable.

    Args:
        kind: The class of the variable's layer.
        name: The name of the variable, such as "kernel".
        sizes: The shape of the variable.
        equation: The equation of the layer if it is an EinsumDense, such as "abc,cde->abde".
    """
    sizes, rank = tuple(sizes), len(sizes)
    if equation and name == "bias":
        return KerasLayout(sizes, tuple(range(rank)), rank, (math.prod(sizes),))
    if equation and name == "kernel":
        return _of_einsum(sizes, equation)
    if rank > 2 and (name == "depthwise_kernel" or "Depthwise" in kind):
        *space, channels, multiplier = sizes
        order = (rank - 2, rank - 1, *range(rank - 2))
        return KerasLayout(sizes, order, 2, (channels * multiplier, 1, *space))
    if rank > 1 and name in _KERNELS:
        order = (rank - 1, rank - 2, *range(rank - 2))
        return KerasLayout(sizes, order, 1, tuple(sizes[axis] for axis in order))
    return KerasLayout(sizes, tuple(range(rank)), min(rank, 1), sizes)


def _of_einsum(sizes: tuple[int, ...], equation: str) -> KerasLayout:
    kernel, output = equation.replace(" ", "").split(",")[1].split("->")
    rows = [axis for axis, letter in enumerate(kernel) if letter in output]
    columns = [axis for axis, letter in enumerate(kernel) if letter not in output]
    if rows != list(range(len(sizes) - len(rows), len(sizes))) or not columns:
        return KerasLayout(sizes, tuple(range(len(sizes))), min(len(sizes), 1), sizes)  # not a linear layer's kernel
    shape = math.prod(sizes[axis] for axis in rows), math.prod(sizes[axis] for axis in columns)
    return KerasLayout(sizes, (*rows, *columns), len(rows), shape)
