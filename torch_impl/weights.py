"""Converts between torch's parameters and neutral names and layouts."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import nn

from samestep.common.program import StatePiece
from samestep.common.workload.models.transformer import TOKENS
from samestep.common.workload.optimizers.spec import Shape
from samestep.torch_impl.features.applied import NEUTRAL
from samestep.torch_impl.models.experts import Stacked
from samestep.torch_impl.models.transformer import TiedLogits
from samestep.torch_impl.sharded import copy_shard, local_extent, local_part

# Type of module -> its parameters: the neutral name, and the permutation of axes from torch's layout to the neutral one.
# A name that starts with a slash is relative to the whole model, not to the path of the module.
_NEUTRAL = {
    TiedLogits: {"weight": (f"/{TOKENS}", (0, 1))},
    nn.Linear: {"weight": ("kernel", (1, 0)), "bias": ("bias", (0,))},
    Stacked: {"weight": ("kernel", (0, 1, 2)), "bias": ("bias", (0, 1))},
    nn.Conv2d: {"weight": ("kernel", (2, 3, 1, 0)), "bias": ("bias", (0,))},
    nn.Embedding: {"weight": ("table", (0, 1))},
    nn.LayerNorm: {"weight": ("scale", (0,)), "bias": ("bias", (0,))},
    nn.RMSNorm: {"weight": ("scale", (0,))},
    **NEUTRAL,
    nn.GroupNorm: {"weight": ("scale", (0,)), "bias": ("bias", (0,))},
}


@dataclasses.dataclass(frozen=True, eq=False)
class Weight:
    """A parameter of a model, with the conversion to its neutral layout.

    Attributes:
        parameter: The parameter in torch.
        permutation: The permutation of the axes, from torch's layout to the neutral one.
    """

    parameter: nn.Parameter
    permutation: tuple[int, ...]

    def to_neutral(self, value: torch.Tensor) -> np.ndarray:
        """Returns a copy of a whole tensor, shaped like the parameter; its memory keeps torch's layout, which is faster."""
        return np.array(value.detach().cpu().permute(self.permutation).numpy())

    def piece(self, path: str, value: torch.Tensor) -> StatePiece:
        """Returns the part of a tensor that this rank holds, in the neutral layout; on a CPU it shares the tensor's memory.

        Args:
            path: See `StatePiece`.
            value: A tensor that is shaped and sharded like the parameter.
        """
        extent = local_extent(value)
        offset = tuple(extent[dim][0] for dim in self.permutation)
        shape = tuple(value.shape[dim] for dim in self.permutation)
        return StatePiece(path, offset, shape, local_part(value).detach().cpu().permute(self.permutation).numpy())

    def laid_out(self, shape: Shape) -> Shape:
        """Returns torch's shape of an array with the axes of the parameter, given its neutral shape."""
        return tuple(shape[axis] for axis in np.argsort(self.permutation))

    def from_neutral(self, value: np.ndarray) -> torch.Tensor:
        """Returns the inverse of `to_neutral`, in the parameter's dtype and on its device."""
        # It is rounded first, which may halve what is copied.
        laid_out = value if value.flags.f_contiguous else np.ascontiguousarray(value)  # the memory layout of torch
        rounded = torch.from_numpy(laid_out).to(self.parameter.dtype)
        return rounded.permute(np.argsort(self.permutation).tolist()).contiguous().to(self.parameter.device)


def named_weights(*models: nn.Module) -> dict[str, Weight]:
    """Returns the parameters of a model or of its parts, by neutral name; a tied parameter has only its first name.

    Args:
        *models: The models or parts, without wrappers that change the paths of modules.
    """
    weights: dict[str, Weight] = {}
    seen: set[nn.Parameter] = set()
    for path, module in itertools.chain.from_iterable(model.named_modules() for model in models):
        for name, parameter in module.named_parameters(recurse=False):
            if parameter not in seen:
                seen.add(parameter)
                neutral, permutation = _to_neutral(module, name, parameter)
                full = neutral if neutral.startswith("/") else f"{path.replace('.', '/')}/{neutral}"
                weights[full.lstrip("/")] = Weight(parameter, permutation)
    return weights


def _to_neutral(module: nn.Module, name: str, parameter: nn.Parameter) -> tuple[str, tuple[int, ...]]:
    """Returns the neutral name of a parameter in its module, and the permutation of its axes.

    A module without an entry keeps its names, with the axes reversed like those of a kernel. A norm over several axes keeps
    torch's order of axes.
    """
    table = next((table for kind, table in _NEUTRAL.items() if isinstance(module, kind)), {})
    neutral, permutation = table.get(name) or (name, tuple(reversed(range(parameter.ndim))))
    return neutral, permutation if len(permutation) == parameter.ndim else tuple(range(parameter.ndim))


def named_buffers(*models: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the buffers of a model or of its parts, by neutral name.

    Args:
        *models: See `named_weights`.
    """
    return {name.replace(".", "/"): buffer for model in models for name, buffer in model.named_buffers()}


@contextlib.contextmanager
def remade(model: nn.Module) -> Iterator[None]:
    """Makes a context in which the parameters of a model may be replaced; afterwards, tied ones are tied again.

    Functions that replace parameters, such as `to_empty` and `parallelize_module`, make two of a tied one (torch 2.13).
    Frozen parameters are also frozen again.

    Args:
        model: The model, which is changed in place.
    """
    first: dict[nn.Parameter, str] = {}
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    names = [(name, first.setdefault(p, name)) for name, p in model.named_parameters(remove_duplicate=False)]
    yield
    for path, name in ((path, name) for path, name in names if path != name):
        owner, _, own = path.rpartition(".")
        model.get_submodule(owner).register_parameter(own, model.get_parameter(name))
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)


def materialize(
    model: nn.Module, device: torch.device, params: Mapping[str, np.ndarray], buffers: Mapping[str, np.ndarray]
) -> None:
    """Allocates the memory of a model, unless it has memory, and sets its weights, one parameter after the other.

    Args:
        model: The model in its final dtype, usually on the meta device, whole or already sharded.
        device: The device of this process.
        params: The whole parameters by neutral name; of sharded ones, this process takes its part.
        buffers: The buffers by neutral name, if there are any.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        with remade(model):
            model.to_empty(device=device)
    else:
        model.to(device)
    with torch.no_grad():
        for name, weight in named_weights(model).items():
            copy_shard(weight.parameter, weight.from_neutral(params[name]))
        for name, buffer in named_buffers(model).items():
            if name in buffers:
                buffer.copy_(torch.from_numpy(buffers[name]))


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Returns the bytes of the tensors that are not None; of sharded ones, only this process's part counts."""
    return sum(local_part(tensor).nbytes for tensor in tensors if tensor is not None)


def dtype_names(tensors: Iterable[torch.Tensor | None]) -> str:
    """Returns the dtypes of the tensors that are not None, such as "float32"."""
    return "+".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor is not None}))
