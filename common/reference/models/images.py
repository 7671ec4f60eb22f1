"""The layers of image models, each with its derivative written out."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.models.layers import Layer, Saved, rows_times


@dataclasses.dataclass
class Convolution:
    """A 3x3 convolution with stride 1 and same padding, on [batch, height, width, channels].

    Attributes:
        name: The path of its parameters.
        of_data: Whether its input is the data, which needs no gradient.
        bias: Whether it has a bias.
    """

    name: str
    of_data: bool = False
    bias: bool = True

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Gathers the nine neighbours of every pixel, then multiplies once."""
        batch, height, width, channels = x.shape
        padded = np.zeros((batch, height + 2, width + 2, channels))
        padded[:, 1:-1, 1:-1] = x
        patches = np.concatenate(
            [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], axis=-1
        )
        kernel = params[f"{self.name}/kernel"]
        y = rows_times(patches, kernel.reshape(-1, kernel.shape[-1]))
        if self.bias:
            y += params[f"{self.name}/bias"]
        return y, patches

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Adds each neighbour's part of the gradient to the pixel from which it was gathered."""
        kernel, rows = params[f"{self.name}/kernel"], dy.reshape(-1, dy.shape[-1])
        gradients[f"{self.name}/kernel"] = (saved.reshape(-1, saved.shape[-1]).T @ rows).reshape(kernel.shape)
        if self.bias:
            gradients[f"{self.name}/bias"] = rows.sum(axis=0)
        if self.of_data:
            return dy
        batch, height, width, _ = dy.shape
        dpadded = np.zeros((batch, height + 2, width + 2, kernel.shape[2]))
        for i in range(3):
            for j in range(3):
                dpadded[:, i : i + height, j : j + width] += rows_times(dy, kernel[i, j].T)
        return dpadded[:, 1:-1, 1:-1]


class AveragePool:
    """Replaces each 2x2 window by its mean."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Halves height and width."""
        rows = x[:, ::2] + x[:, 1::2]
        return (rows[:, :, ::2] + rows[:, :, 1::2]) / 4, None

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Returns the gradient of the input: each element of a window gets a quarter."""
        return (dy / 4).repeat(2, axis=1).repeat(2, axis=2)


class MaxPool:
    """Replaces each 2x2 window by its largest element; of equal ones, the first in row-major order gets the gradient."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Halves height and width."""
        batch, height, width, channels = x.shape
        windows = x.reshape(batch, height // 2, 2, width // 2, 2, channels).transpose(0, 1, 3, 5, 2, 4)
        flat = windows.reshape(*windows.shape[:4], 4)
        return flat.max(axis=-1), (flat.argmax(axis=-1), x.shape)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Returns the gradient of the input: the chosen element gets all of it."""
        chosen, (batch, height, width, channels) = saved
        flat = np.zeros((*dy.shape, 4))
        np.put_along_axis(flat, chosen[..., None], dy[..., None], axis=-1)
        windows = flat.reshape(*dy.shape, 2, 2).transpose(0, 1, 4, 2, 5, 3)
        return windows.reshape(batch, height, width, channels)


POOLINGS: Mapping[str, type[Layer]] = {"average": AveragePool, "max": MaxPool}
