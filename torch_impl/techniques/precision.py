"""Mixed precision: forward and backward compute in two bytes a number, from parameters in float32.

torch.autocast gives two bytes to what goes into products, and float32 to what two bytes would spoil. It is part of the
model's own forward pass: whichever thread runs that has it, and so does a recomputation. What the model returns is float32
again, so that losses are, and what goes from one stage of a pipeline to the next.

References:
    torch.autocast (torch 2.13); Micikevicius et al., arXiv 1710.03740 (float32 master weights).
"""

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.func import functional_call

from samestep.common.errors import Unavailable
from samestep.common.strategy import Run

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
    for norm in [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]:
        _widen_scale(norm)
    kind, dtype = type(model), TYPES[run.techniques.precision]

    def forward(self: nn.Module, *inputs: Any, **several: Any) -> object:
        with torch.autocast(device.type, dtype):
            return kind.forward(self, *inputs, **several)

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    model.register_forward_hook(_widen)  # behind the hook that takes the logits of what a user's model returns


def _widen_scale(norm: nn.modules.batchnorm._BatchNorm) -> None:
    """Has a batch normalisation take a scale that was gathered in two bytes as its statistics are (torch 2.13 wants that)."""
    kind = type(norm)

    def forward(self: nn.modules.batchnorm._BatchNorm, input: torch.Tensor) -> torch.Tensor:
        wide = (
            {} if self.running_mean is None else {n: p.to(self.running_mean.dtype) for n, p in self.named_parameters()}
        )
        if all(parameter.dtype == wide[name].dtype for name, parameter in self.named_parameters() if wide):
            return kind.forward(self, input)
        return functional_call(self, wide, input)

    norm.__class__ = type(kind.__name__, (kind,), {"forward": forward})


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
