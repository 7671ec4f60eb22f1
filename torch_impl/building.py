"""Builds the model of a run on one device, with everything that the run changes about it."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from samestep.common.features.used import initial_buffers
from samestep.common.strategy import Run
from samestep.common.workload.initial import initial_weights
from samestep.torch_impl import weights
from samestep.torch_impl.features.applied import exchanging, prepare, switch_layers
from samestep.torch_impl.models import build_model
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import adapt, restructure

Part = TypeVar("Part", bound=nn.Module)
"""The part of a model that a process holds."""


def build_switched(run: Run, device: torch.device, context: StepContext, cut: Callable[[nn.Module], Part]) -> Part:
    """Builds the workload's model in the run's dtype, and switches off the layers that the run switches off.

    The model may be on the meta device.

    Args:
        run: The run.
        device: The device to build it on, if it cannot be built on the meta device.
        context: What the layers read about the current micro-batch.
        cut: Reduces the model, in place, to the part that this process holds, and returns that.
    """
    spec = run.workload.model
    prepare(run)
    # The meta device is ruled out if the model may hold tensors that are neither parameters nor buffers.
    with torch.device("meta" if spec.facts.is_built_here else device):
        whole = build_model(spec, context)
        model = cut(whole)
    model.to(getattr(torch, run.dtype))
    switch_layers(whole, run, spec.facts.habits.running)
    return model


def build_fresh_model(
    run: Run,
    device: torch.device,
    context: StepContext,
    distribute: Callable[[nn.Module], object] = lambda model: None,
) -> nn.Module:
    """Builds the workload's model with its initial weights, in the run's dtype.

    Args:
        run: The run.
        device: The device to build it on.
        context: What the layers read about the current micro-batch.
        distribute: Shards the model in place before it takes memory, so no process ever holds all of it.
    """
    spec, model = run.workload.model, build_switched(run, device, context, lambda model: model)
    model = exchanging(run, model, device)
    restructure(run, model)
    distribute(model)
    weights.materialize(model, device, initial_weights(spec, run.seed), initial_buffers(spec))
    adapt(run, model, device)
    return model
