"""Finds the layers of a torch model that hold parameters, in the order of execution."""

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from samestep.common.workload.models.layer import LayerTensor, ParameterLayer
from samestep.torch_impl import weights
from samestep.torch_impl.features.applied import BUFFER_ROLES
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.tracing import WHOLE, recording

_RECURRENT = {"weight_ih": "kernel", "weight_hh": "recurrent", "bias_ih": "bias", "bias_hh": "second_bias"}
_ROLES = {"weight": "kernel", "bias": "bias"}
_BAG = {"weight": "value"}
"""The role of the table of an `EmbeddingBag`, which is not a kernel although its neutral axes are those of a kernel."""


def describe_layers(model: nn.Module, inputs: Inputs) -> tuple[ParameterLayer, ...]:
    """Returns the layers of a model that hold parameters, in the order in which some inputs reach them.

    Args:
        model: The model.
        inputs: A few examples.
    """
    with torch.no_grad(), recording(model) as recorder:
        model(inputs)
    return find_layers(model, recorder.started)


def find_layers(model: nn.Module, started: list[str]) -> tuple[ParameterLayer, ...]:
    """Returns the layers of a model that hold parameters, in the order of execution.

    Args:
        model: The model.
        started: The paths of its modules in the order in which they were first called.
    """
    modules = dict(model.named_modules())
    order = {path: number for number, path in enumerate(started)}
    neutral = {id(weight.parameter): (name, weight) for name, weight in weights.named_weights(model).items()}
    found: list[tuple[int, ParameterLayer]] = []
    for path, module in modules.items():
        whole = next((outer for outer in _outer(path) if isinstance(modules[outer], WHOLE)), path)
        place = order.get(path, order.get(whole, len(order)))
        held = {
            name: LayerTensor(
                neutral[id(p)][0], f"{path}.{name}".lstrip("."), tuple(p.shape), neutral[id(p)][1].permutation
            )
            for name, p in module.named_parameters(recurse=False)
            if id(p) in neutral
        }
        found += [(place, layer) for layer in _layers(path, whole, module, held)]
        for p in module.parameters(recurse=False):
            neutral.pop(id(p), None)  # a tied parameter belongs to its first layer
    return tuple(layer for _, layer in sorted(found, key=lambda pair: pair[0]))


def _outer(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts))]


def _layers(path: str, call: str, module: nn.Module, held: dict[str, LayerTensor]) -> Iterator[ParameterLayer]:
    """Yields the layers of one module: one layer for all parameters with roles, and one for each other parameter."""
    kind, used = type(module).__name__, set[str]()
    if isinstance(module, nn.RNNBase):
        for number in range(module.num_layers):
            for suffix in ("", "_reverse"):
                names = {f"{stem}_l{number}{suffix}": role for stem, role in _RECURRENT.items()}
                params = {role: held[name] for name, role in names.items() if name in held}
                if params:
                    yield ParameterLayer(name=f"{path}.l{number}{suffix}", kind=kind, call=call, params=params)
        return
    if isinstance(module, nn.MultiheadAttention):
        params = {role: held[f"in_proj_{name}"] for name, role in _ROLES.items() if f"in_proj_{name}" in held}
        used |= {f"in_proj_{name}" for name in _ROLES}
        if params:
            yield ParameterLayer(name=path, kind=kind, call=call, params=params)
    known = _roles(held, _BAG if isinstance(module, nn.EmbeddingBag) else _ROLES)
    if known:
        params = {role: held[name] for name, role in known.items()}
        yield ParameterLayer(name=path, kind=kind, call=call, params=params, buffers=_buffers(path, module))
    for name in held.keys() - known.keys() - used:
        yield ParameterLayer(
            name=f"{path}.{name}".lstrip("."), kind="Parameter", call=path, params={"value": held[name]}
        )


def _roles(held: Mapping[str, LayerTensor], usual: Mapping[str, str]) -> dict[str, str]:
    """Returns torch's names -> roles, from the neutral names; otherwise a weight is a kernel or, with one axis, a scale."""
    known = {"kernel", "table", "scale", "bias"}
    roles = {name: last for name, each in held.items() if (last := each.neutral.rpartition("/")[2]) in known}
    rest = {name: role for name, role in usual.items() if name in held and name not in roles}
    return roles | {name: "scale" if name == "weight" and len(held[name].shape) == 1 else rest[name] for name in rest}


def _buffers(path: str, module: nn.Module) -> dict[str, LayerTensor]:
    shapes = {name: tuple(b.shape) for name, b in module.named_buffers(recurse=False) if name in BUFFER_ROLES}
    native = {name: f"{path}.{name}".lstrip(".") for name in shapes}
    return {name: LayerTensor(native[name].replace(".", "/"), native[name], shapes[name], (0,)) for name in shapes}
