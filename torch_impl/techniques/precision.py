"""Mixed precision: forward and backward compute in two bytes a number, from parameters in float32.

torch.autocast casts the factors of products to two bytes, and keeps in float32 what two bytes would spoil. It is entered in the
model's own forward pass, so it applies on any thread that runs the model, and in a recomputation. The model returns float32, so
losses are float32, and so are the activations between the stages of a pipeline.

In fp16, small gradients would be zero. So the backward pass starts with a scale instead of 1, and gradients are divided by it
before anything else is done with them. If a gradient is not finite on any rank, no rank takes the step, and the scale is halved.
After many steps without that, it is doubled.

Kept dtypes: a user's modules see their parameters in two bytes if the file made them so, but the trained parameters have four.
A parameter is read through a property that casts it, as in torch's parametrizations, and keeps its name. So gradients, sums over
ranks and optimizer state are in float32, and every strategy holds and sends the same as without the flag.

References:
    torch.autocast and torch.nn.utils.parametrize (torch 2.13); Micikevicius et al., arXiv 1710.03740 (float32 master weights);
    torch.amp.GradScaler (torch 2.13), whose factors these are; neither it nor FSDP2 makes the ranks agree on a step.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.utils import _pytree as pytree

from samestep.common.errors import Unavailable
from samestep.common.program import SKIPPED, Arrays
from samestep.common.strategy import Run
from samestep.common.techniques.precision.flag import TWO_BYTES
from samestep.common.workload.models.dtypes import Dtypes
from samestep.torch_impl.features.applied import widen_scales
from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.step_context import StepContext

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_SCALE, GROWTH, BACKOFF, PATIENCE = 2.0**16, 2.0, 0.5, 2000
"""The first loss scale, its factors of growth and of backoff, and the number of finite steps after which it grows."""
SCALE, GOOD = "loss_scale", "good_steps"


def mix_precision(run: Run, model: nn.Module, device: torch.device) -> None:
    """Makes a model compute in a two-byte dtype if the run asks for it, in place.

    Args:
        run: The run.
        model: The model, or a stage of it; its class changes, so copies of it compute in that dtype as well.
        device: The device that the model computes on.

    Raises:
        Unavailable: The device does not compute in that dtype.
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
    model.register_forward_hook(_widen)  # after the hook that takes the logits from what a user model returns


def _widen(module: nn.Module, inputs: object, outputs: torch.Tensor) -> torch.Tensor:
    return outputs.float()


def gathering(run: Run) -> MixedPrecisionPolicy:
    """Returns the dtypes of sharded exchanges: parameters are gathered in the dtype of the run, gradients summed in float32."""
    if run.techniques.precision is None:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=TYPES[run.techniques.precision], reduce_dtype=torch.float32)


def require(run: Run, device: torch.device) -> None:
    """Checks that a device computes in the dtype that the run asks for.

    Args:
        run: The run.
        device: The device of this process.

    Raises:
        Unavailable: The device does not.
    """
    if run.techniques.precision == "fp16" and device.type == "cpu":
        raise Unavailable("--precision fp16 needs a GPU: CPU cores have no units for it; give --precision bf16 here.")


def in_full(device: torch.device) -> torch.autocast:
    """Returns a context that turns autocast off for a part of the forward pass, which then keeps the dtypes of its inputs.

    Args:
        device: The device that computes.
    """
    return torch.autocast(device.type, enabled=False)


@contextlib.contextmanager
def narrowly() -> Iterator[None]:
    """Makes the context of a forward pass in two bytes, without oneDNN, in which an LSTM is a single operation."""
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), torch.backends.mkldnn.flags(enabled=False):
        yield


class LossScaler:
    """Adjusts the loss scale, which the context holds for the backward passes, and records the skipped steps.

    Attributes:
        skipped: The numbers of the skipped steps.
    """

    def __init__(self, context: StepContext) -> None:
        self.skipped: list[int] = []
        self._good = 0
        self._context = context
        context.seed_gradient = FIRST_SCALE

    def unscale(self, gradients: Sequence[torch.Tensor], step: int) -> bool:
        """Divides the gradients by the scale, in place; returns whether the step may be taken, the same on all ranks.

        Args:
            gradients: The gradients of this process, after the exchange.
            step: The number of the step.
        """
        own = [local_part(gradient) for gradient in gradients]
        torch._foreach_mul_(own, 1 / self._context.seed_gradient)
        is_finite = agree(torch.stack([torch.isfinite(gradient).all() for gradient in own]).all())
        self._good = self._good + 1 if is_finite else 0
        if not is_finite:
            self.skipped.append(step)
            self._context.seed_gradient *= BACKOFF
        elif self._good % PATIENCE == 0:
            self._context.seed_gradient *= GROWTH
        return is_finite

    def snapshot(self) -> Arrays:
        """Returns the state from which a run continues."""
        scale = {SCALE: np.array(self._context.seed_gradient), GOOD: np.array(self._good)}
        return scale | {SKIPPED: np.array(self.skipped, np.int64)}

    def restore(self, kept: Mapping[str, np.ndarray]) -> None:
        """Continues from what `snapshot` returned, or resets the scale if that is empty."""
        self._context.seed_gradient = float(kept.get(SCALE, FIRST_SCALE))
        self._good = int(kept.get(GOOD, 0))
        self.skipped = [int(step) for step in kept.get(SKIPPED, ())]


def agree(is_finite: torch.Tensor) -> bool:
    """Returns whether gradients are finite on all ranks; if they are sharded, only one rank may see one that is not."""
    bad = (~is_finite).float()
    if dist.is_initialized():
        dist.all_reduce(bad)
    return not math.ceil(bad.item())


def scaler_of(run: Run, context: StepContext) -> LossScaler | None:
    """Returns the scaler of a run; None if gradients do not underflow in its dtype.

    Args:
        run: The run.
        context: Holds the scale for the backward passes.
    """
    return LossScaler(context) if run.techniques.precision == "fp16" else None


# --- kept dtypes ------------------------------------------------------------------------------------------------------


def keep_dtypes(run: Run, model: nn.Module) -> None:
    """Makes a model compute in the dtypes of the user's file if the run asks for it, in place.

    Args:
        run: The run.
        model: The model, or a stage of it; the classes of its modules change, so copies behave in the same way.
    """
    if not run.techniques.keep_dtypes:
        return
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # FSDP looks up its parameters again before its first forward pass (torch 2.13), so that happens here.
            module.unshard()
            module.reshard()
    see_kept(model, run.workload.model.facts.dtypes)


def can_keep(dtypes: Dtypes) -> bool:
    """Returns whether a run can keep any of these dtypes."""
    return TWO_BYTES in dtypes.values()


def see_kept(model: nn.Module, dtypes: Dtypes) -> None:
    """Makes modules see parameters and buffers in two bytes; if all parameters are, the model sees real inputs in two as well.

    Args:
        model: The model, in float32.
        dtypes: Torch's name of a parameter or buffer -> its dtype in the file, if that is not float32.
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
