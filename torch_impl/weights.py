"""Neutral names and layouts <-> torch's parameters."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import nn

from samestep.torch_impl.sharded import local_part

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
        permuted = np.ascontiguousarray(value.transpose(np.argsort(self.permutation)))
        return torch.from_numpy(permuted).to(self.parameter.device, self.parameter.dtype)


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


def load(model: nn.Module, params: Mapping[str, np.ndarray]) -> None:
    """Sets every parameter of a model.

    Args:
        model: The model, not wrapped.
        params: The full parameters by neutral name.
    """
    with torch.no_grad():
        for name, weight in named_weights(model).items():
            weight.parameter.copy_(weight.from_neutral(params[name]))


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Adds up the bytes of the tensors that are not None; of a sharded one, those of this process's part."""
    return sum(local_part(tensor).nbytes for tensor in tensors if tensor is not None)


def dtype_names(tensors: Iterable[torch.Tensor | None]) -> str:
    """The dtypes of the tensors that are not None, such as "float32"."""
    return "+".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor is not None}))
