"""The layers that make up the models, each with its derivative written out."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import erf, expit

from samestep.common.program import Arrays
from samestep.common.workload.models.transformer import NORM_EPSILON

Saved = Any  # each layer saves something different, which only its own backward pass reads


@runtime_checkable
class Layer(Protocol):
    """A differentiable function of an array and of named parameters."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Returns the output, and what the backward pass needs.

        Args:
            params: All parameters of the model, by name.
            x: The input.
        """

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Writes the gradients of the parameters into `gradients`, and returns the gradient of the input.

        Args:
            params: All parameters of the model, by name.
            saved: What `forward` returned with the output.
            dy: The gradient of the output.
            gradients: Receives the gradients of this layer's parameters, by name.
        """


def layers_below(root: Layer) -> Iterator[Layer]:
    """Yields every layer of a model, including the model itself."""
    yield root
    children = vars(root).values()
    for child in (each for value in children for each in (value if isinstance(value, list | tuple) else (value,))):
        if _is_layer(type(child)):
            yield from layers_below(child)


@functools.cache
def _is_layer(kind: type) -> bool:
    return issubclass(kind, Layer)  # for a protocol this is slow in Python 3.11, hence the cache


@dataclasses.dataclass
class Sequential:
    """Applies layers one after the other."""

    layers: Sequence[Layer]

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Applies the layers in order."""
        saved = []
        for layer in self.layers:
            x, kept = layer.forward(params, x)
            saved.append(kept)
        return x, saved

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Propagates the gradient through the layers in reverse order."""
        for layer, kept in zip(reversed(self.layers), reversed(saved), strict=True):
            dy = layer.backward(params, kept, dy, gradients)
        return dy


@dataclasses.dataclass
class Residual:
    """Adds the output of a layer to its input: x + inner(x)."""

    inner: Layer

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Returns x + inner(x)."""
        y, saved = self.inner.forward(params, x)
        return x + y, saved

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Returns the sum of the gradients of both branches."""
        return dy + self.inner.backward(params, saved, dy, gradients)


def rows_times(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Returns x @ kernel as one product over all leading dimensions; NumPy would compute many small ones.

    Args:
        x: [..., in].
        kernel: [in, out].
    """
    return (x.reshape(-1, x.shape[-1]) @ kernel).reshape(*x.shape[:-1], kernel.shape[-1])


@dataclasses.dataclass
class Linear:
    """Computes x @ kernel + bias on the last dimension; the bias is optional."""

    name: str
    bias: bool = True

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Maps [..., in] to [..., out]."""
        y = rows_times(x, params[f"{self.name}/kernel"])
        if self.bias:
            y += params[f"{self.name}/bias"]
        return y, x

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Sums the gradient of the kernel over all leading dimensions, and returns the gradient of the input."""
        rows = dy.reshape(-1, dy.shape[-1])
        gradients[f"{self.name}/kernel"] = saved.reshape(-1, saved.shape[-1]).T @ rows
        if self.bias:
            gradients[f"{self.name}/bias"] = rows.sum(axis=0)
        return rows_times(dy, params[f"{self.name}/kernel"].T)


class Gelu:
    """Computes x * Phi(x) with the exact normal distribution (no tanh)."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Returns x * Phi(x), elementwise."""
        phi = erf(x / math.sqrt(2))
        phi += 1
        phi *= 0.5
        return x * phi, (x, phi)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Multiplies the gradient by Phi(x) + x * phi(x)."""
        x, phi = saved
        slope = np.exp(-0.5 * x * x)
        slope *= x / math.sqrt(2 * math.pi)
        slope += phi
        slope *= dy
        return slope


class Silu:
    """Computes x * sigmoid(x)."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Returns x * sigmoid(x), elementwise."""
        sigmoid = expit(x)
        return x * sigmoid, (x, sigmoid)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Multiplies the gradient by sigmoid(x) * (1 + x * (1 - sigmoid(x)))."""
        x, sigmoid = saved
        return dy * sigmoid * (1 + x * (1 - sigmoid))


class Relu:
    """Computes the maximum of x and 0."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Returns max(x, 0), elementwise."""
        return np.maximum(x, 0), x > 0

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Multiplies the gradient by 1 where x > 0, and by 0 elsewhere."""
        return dy * saved


ACTIVATIONS: Mapping[str, type[Layer]] = {"gelu": Gelu, "relu": Relu}


@dataclasses.dataclass
class Norm:
    """Layer normalization over the last dimension, with the biased variance."""

    name: str
    epsilon: float = NORM_EPSILON

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias."""
        normal = x - x.mean(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt((normal * normal).mean(axis=-1, keepdims=True) + self.epsilon)
        normal *= inverse
        return normal * params[f"{self.name}/scale"] + params[f"{self.name}/bias"], (normal, inverse)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Projects out the mean and the component along the normalized input."""
        normal, inverse = saved
        leading = tuple(range(dy.ndim - 1))
        gradients[f"{self.name}/scale"] = (dy * normal).sum(axis=leading)
        gradients[f"{self.name}/bias"] = dy.sum(axis=leading)
        dn = dy * params[f"{self.name}/scale"]
        along = (dn * normal).mean(axis=-1, keepdims=True)
        return inverse * (dn - dn.mean(axis=-1, keepdims=True) - normal * along)


@dataclasses.dataclass
class RootNorm:
    """Divides by the root of the mean square over the last dimension (RMSNorm)."""

    name: str
    epsilon: float = NORM_EPSILON

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Returns x / sqrt(mean of squares + epsilon) * scale."""
        inverse = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)
        normal = x * inverse
        return normal * params[f"{self.name}/scale"], (normal, inverse)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Projects out the component along the normalized input."""
        normal, inverse = saved
        gradients[f"{self.name}/scale"] = (dy * normal).sum(axis=tuple(range(dy.ndim - 1)))
        dn = dy * params[f"{self.name}/scale"]
        return inverse * (dn - normal * (dn * normal).mean(axis=-1, keepdims=True))


class Flatten:
    """Flattens [batch, ...] to [batch, features], channels last."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Flattens all dimensions but the first."""
        return x.reshape(len(x), -1), x.shape

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Restores the shape of the input."""
        return dy.reshape(saved)


def scatter_rows(ids: np.ndarray, dy: np.ndarray, rows: int) -> np.ndarray:
    """Returns the gradient of a table from which rows were looked up; rows that were looked up repeatedly add up.

    Args:
        ids: The rows that were looked up, [lookups].
        dy: The gradient of the looked-up rows, [lookups, width].
        rows: The number of rows of the table.
    """
    order = np.argsort(ids, kind="stable")
    present, starts = np.unique(ids[order], return_index=True)
    gradient = np.zeros((rows, dy.shape[-1]))
    gradient[present] = np.add.reduceat(dy[order], starts, axis=0)
    return gradient
