"""The model of a run on one device, with everything that the run changes about it."""

from collections.abc import Callable

import torch
from torch import nn

from samestep.common.strategy import Run
from samestep.common.workload.initial import initial_buffers, initial_weights
from samestep.torch_impl import weights
from samestep.torch_impl.models import build_model
from samestep.torch_impl.models.synchronized import synchronize
from samestep.torch_impl.models.user_model import switch_functions, switch_layers
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import adapt, restructure


def build_fresh_model(
    run: Run,
    device: torch.device,
    context: StepContext,
    distribute: Callable[[nn.Module], object] = lambda model: None,
) -> nn.Module:
    """Builds the workload's model with its initial weights, in the run's dtype.

    Args:
        run: What is trained.
        device: The device to build it on.
        context: What its layers read of the present micro-batch.
        distribute: Shards the model in place while it takes no memory yet, so that no process ever holds all of it.
    """
    spec = run.workload.model
    switch_functions(run.dropout)
    # On the meta device, unless the model may hold tensors that are neither parameters nor buffers.
    with torch.device("meta" if spec.facts.is_built_here else device):
        model = build_model(spec, context).to(getattr(torch, run.dtype))
    switch_layers(model, run.dropout, run.batch_norm, spec.facts.habits.running)
    if run.batch_norm == "sync" and run.mesh.replicas > 1:
        model = synchronize(model, device)
    restructure(run, model)
    distribute(model)
    weights.materialize(model, device, initial_weights(spec, run.seed), initial_buffers(spec))
    adapt(run, model, device)
    return model
