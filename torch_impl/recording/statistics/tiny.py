"""The statistics of many tiny tensors of a CPU at once, such as biases: a call for each would cost more than their numbers."""

from collections.abc import Sequence

import numpy as np
import torch

Found = tuple[np.ndarray, torch.Tensor, torch.Tensor, torch.Tensor]
"""Places, projections, square norms, and sums of bits as int32."""
_SINGLE = torch.float32  # before float64 mode renames it


def is_plain(dtype: torch.dtype, device: torch.device) -> bool:
    """Returns whether tensors can be computed with others that are laid beside them.

    Args:
        dtype: That of the tensors.
        device: Where they are.
    """
    return dtype == _SINGLE and device.type == "cpu"


class Tiny:
    """Computes the statistics of many tiny tensors of a CPU at once: they are laid one after the other."""

    def __init__(self) -> None:
        """Has none yet."""
        self.signs: dict[int, np.ndarray] = {}
        self._together: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def add(self, place: int, signs: np.ndarray) -> None:
        """Adds a tensor.

        Args:
            place: The place of the tensor.
            signs: The signs of its numbers, [PROJECTIONS, numbers].
        """
        self.signs[place] = signs

    def __call__(self, places: list[int], values: Sequence[torch.Tensor]) -> Found:
        """Computes them.

        Args:
            places: The places of those that are there.
            values: All tensors, flat.
        """
        key = tuple(places)
        if key not in self._together:
            sizes = [self.signs[place].shape[1] for place in places]
            self._together[key] = (
                np.array(places),
                np.cumsum([0, *sizes[:-1]]),
                np.concatenate([self.signs[place] for place in places], axis=1),
            )
        index, starts, signs_KS = self._together[key]
        x_S = torch.cat([values[place] for place in places]).numpy()
        projected = np.add.reduceat(x_S * signs_KS, starts, axis=1).T
        squares = np.add.reduceat(x_S.astype(np.float64) ** 2, starts)
        bits = np.add.reduceat(x_S.view(np.int32), starts, dtype=np.int32)
        return index, torch.from_numpy(projected), torch.from_numpy(squares), torch.from_numpy(bits)
