"""Mixed precision: forward and backward compute in two bytes a number, from parameters in float32.

torch.autocast gives two bytes to what goes into products, and float32 to what two bytes would spoil. It is part of the
model's own forward pass: whichever thread runs that has it, and so does a recomputation. What the model returns is float32
again, so that losses are, and what goes from one stage of a pipeline to the next.

References:
    torch.autocast (torch 2.13); Micikevicius et al., arXiv 1710.03740 (float32 master weights).
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from samestep.common.errors import Unavailable
from samestep.common.strategy import Run
from samestep.torch_impl.features.applied import widen_scales

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def mix_precision(run: Run, model: nn.Module, device: torch.device) -> None:
    """Has a model compute in two bytes if the run asks for it, in place.

    Args:
        run: What is trained.
        model: The model, or a stage of it; its class changes, so that copies of it compute so as well.
        device: The device that it computes on.

    Raises:
        Unavailable: The device does not compute in that type.
    """
    if run.techniques.precision is None:
        return
    require(run, device)
    widen_scales(model)
    kind, dtype = type(model), TYPES[run.techniques.precision]

    def forward(self: nn.Module, *inputs: Any, **several: Any) -> object:
        with torch.autocast(device.type, dtype):
            return kind.forward(self, *inputs, **several)

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    model.register_forward_hook(_widen)  # behind the hook that takes the logits of what a user's model returns


def _widen(module: nn.Module, inputs: object, outputs: torch.Tensor) -> torch.Tensor:
    return outputs.float()


def gathering(run: Run) -> MixedPrecisionPolicy:
    """How sharded parameters are gathered: in two bytes if the run computes so; their gradients are summed in float32."""
    if run.techniques.precision is None:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=TYPES[run.techniques.precision], reduce_dtype=torch.float32)


def require(run: Run, device: torch.device) -> None:
    """Makes sure that a device computes in the type that the run asks for.

    Args:
        run: What is trained.
        device: The device of this process.

    Raises:
        Unavailable: It does not.
    """
    if run.techniques.precision == "fp16" and device.type == "cpu":
        raise Unavailable("--precision fp16 needs a GPU: CPU cores have no units for it; give --precision bf16 here.")


def in_full(device: torch.device) -> torch.autocast:
    """Makes the context of computations that are part of a forward pass in two bytes, and keep the dtype that they are given.

    Args:
        device: The device that computes.
    """
    return torch.autocast(device.type, enabled=False)


@contextlib.contextmanager
def narrowly() -> Iterator[None]:
    """Makes the context of a forward pass in two bytes; without oneDNN, for which an LSTM is a single operation."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), torch.backends.mkldnn.flags(enabled=False):
        yield
