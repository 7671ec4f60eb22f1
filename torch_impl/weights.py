"""Neutral names and layouts <-> torch's parameters."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import nn

from samestep.torch_impl.sharded import copy_shard, local_part

# Type of module -> its parameters: the neutral name, and how its axes are permuted from torch's layout to the neutral.
_NEUTRAL = {
    nn.Linear: {"weight": ("kernel", (1, 0)), "bias": ("bias", (0,))},
    nn.Conv2d: {"weight": ("kernel", (2, 3, 1, 0)), "bias": ("bias", (0,))},
    nn.Embedding: {"weight": ("table", (0, 1))},
    nn.LayerNorm: {"weight": ("scale", (0,)), "bias": ("bias", (0,))},
}


@dataclasses.dataclass(frozen=True, eq=False)
class Weight:
    """A parameter of a model, with the way to its neutral layout.

    Attributes:
        parameter: Torch's.
        permutation: The permutation of the axes, from torch's layout to the neutral one.
    """

    parameter: nn.Parameter
    permutation: tuple[int, ...]

    def to_neutral(self, value: torch.Tensor) -> np.ndarray:
        """Copies a whole tensor, shaped like the parameter, into the neutral layout."""
        return value.detach().cpu().permute(self.permutation).numpy().copy()

    def from_neutral(self, value: np.ndarray) -> torch.Tensor:
        """Inverts `to_neutral`, in the parameter's dtype and on its device."""
        rounded = torch.from_numpy(np.ascontiguousarray(value)).to(
            self.parameter.dtype
        )  # first: it halves what is copied
        return rounded.permute(*np.argsort(self.permutation)).contiguous().to(self.parameter.device)


def named_weights(*models: nn.Module) -> dict[str, Weight]:
    """Finds the parameters of a model, or of its parts, by neutral name.

    Args:
        *models: Not wrapped by anything that changes their modules' paths.
    """
    weights = {}
    for path, module in itertools.chain.from_iterable(model.named_modules() for model in models):
        for name, parameter in module.named_parameters(recurse=False):
            neutral, permutation = next(table for kind, table in _NEUTRAL.items() if isinstance(module, kind))[name]
            weights[f"{path.replace('.', '/')}/{neutral}"] = Weight(parameter, permutation)
    return weights


def materialize(model: nn.Module, device: torch.device, params: Mapping[str, np.ndarray]) -> None:
    """Gives a model its memory and its weights, one parameter after the other.

    Args:
        model: The model on the meta device, whole or already sharded, in the dtype that it will have.
        device: The device of this process.
        params: The full parameters by neutral name; of a sharded one, this process's part is kept.
    """
    model.to_empty(device=device)
    with torch.no_grad():
        for name, weight in named_weights(model).items():
            copy_shard(weight.parameter, weight.from_neutral(params[name]))


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Adds up the bytes of the tensors that are not None; of a sharded one, those of this process's part."""
    return sum(local_part(tensor).nbytes for tensor in tensors if tensor is not None)
