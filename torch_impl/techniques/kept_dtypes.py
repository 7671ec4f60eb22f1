"""Kept dtypes: a user's modules see their parameters in two bytes where the file made them so; what is trained has four.

A module's parameter is read through a property that casts it, as torch's parametrizations do, and keeps its name. So gradients,
sums over ranks, and optimizer state are in float32, and every strategy holds and sends what it does without the flag.

References:
    torch.nn.utils.parametrize (torch 2.13).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils import _pytree as pytree

from samestep.common.strategy import Run
from samestep.common.techniques.precision.flag import TWO_BYTES
from samestep.common.workload.models.dtypes import Dtypes


def keep_dtypes(run: Run, model: nn.Module) -> None:
    """Makes a model compute in the dtypes of the user's file if the run asks for it, in place.

    Args:
        run: What is trained.
        model: The model, or a stage of it; the classes of its modules change, so that copies compute so as well.
    """
    if not run.techniques.keep_dtypes:
        return
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # It looks its parameters up once more before its first forward pass (torch 2.13).
            module.unshard()
            module.reshard()
    see_kept(model, run.workload.model.facts.dtypes)


def can_keep(dtypes: Dtypes) -> bool:
    """Returns whether a run can keep any of these dtypes."""
    return TWO_BYTES in dtypes.values()


def see_kept(model: nn.Module, dtypes: Dtypes) -> None:
    """Makes modules see parameters and buffers in two bytes, and the model its real inputs too if all parameters are so.

    Args:
        model: The model, in float32.
        dtypes: Parameter or buffer, by torch's name -> its dtype in the file, where that is another one.
    """
    tensors: Mapping[str, torch.Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    narrow = {id(tensor) for name, tensor in tensors.items() if dtypes.get(name) == TWO_BYTES}
    for module in model.modules():
        held = {**module._parameters, **module._buffers}
        if names := [name for name, tensor in held.items() if id(tensor) in narrow]:
            kind = type(module)
            module.__class__ = type(kind.__name__, (kind,), {name: _seen(name) for name in names})
    if all(id(parameter) in narrow for parameter in model.parameters()):
        kind = type(model)

        def forward(self: nn.Module, *inputs: Any, **named: Any) -> object:
            inputs, named = pytree.tree_map(_narrow, (inputs, named))
            return kind.forward(self, *inputs, **named)

        model.__class__ = type(kind.__name__, (kind,), {"forward": forward})


def _seen(name: str) -> property:
    def read(self: nn.Module) -> object:
        held = next((each for each in (vars(self), self._parameters, self._buffers) if name in each), {})
        return _narrow(held[name]) if name in held else nn.Module.__getattr__(self, name)

    def write(self: nn.Module, value: object) -> None:
        vars(self)[name] = value  # a replica of torch.nn.DataParallel, which has no parameters

    return property(read, write)


def _narrow(value: object) -> object:
    is_single = isinstance(value, torch.Tensor) and value.dtype == torch.float32
    return value.bfloat16() if is_single else value  # type: ignore[union-attr]
