"""Applies the techniques of a run for models, programs and strategies; no other module names individual techniques.

A model is built, then restructured, distributed by its strategy, filled with weights, and adapted. A program asks for a gradient
scaler, and a strategy asks for a different exchange of gradients, or for ranks that take steps alone.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from samestep.common.strategy import Run
from samestep.torch_impl.techniques.clip_norm import transform
from samestep.torch_impl.techniques.compile import compile_model
from samestep.torch_impl.techniques.compress import hook_exchange
from samestep.torch_impl.techniques.fixed_order import all_reduce, order_passes, order_ranks
from samestep.torch_impl.techniques.local_steps import take_apart
from samestep.torch_impl.techniques.precision import (
    can_keep,
    gathering,
    in_full,
    keep_dtypes,
    mix_precision,
    narrowly,
    scaler_of,
    see_kept,
)
from samestep.torch_impl.techniques.recompute import recompute as restructure

__all__ = [
    "adapt",
    "can_keep",
    "gathering",
    "hook_exchange",
    "in_full",
    "narrowly",
    "order_ranks",
    "restructure",
    "scaler_of",
    "see_kept",
    "summing",
    "take_apart",
    "transform",
]


def adapt(run: Run, model: nn.Module, device: torch.device) -> None:
    """Changes the dtype and the code with which a model is computed, in place, once it has its weights.

    Args:
        run: The run.
        model: The model, or a stage of it.
        device: The device that the model computes on.
    """
    mix_precision(run, model, device)
    keep_dtypes(run, model)
    compile_model(run, model)
    order_passes(run, model)


def summing(run: Run) -> Callable[[torch.Tensor], object]:
    """Returns the function that sums a flat tensor over all ranks, in place."""
    return dist.all_reduce if run.techniques.fixed_order is None else all_reduce
