"""Expert parallel: each rank holds some experts of each block; tokens go to the ranks that hold their experts, and back.

Replicated: everything but the experts. Split: the experts along `expert`, the batch along `data` and `expert`.
Sent: in each block, tokens to their experts and the results back, by all-to-all, forward and backward. After the backward pass,
the gradients of experts are all-reduced over `data`, along which experts are replicated, and all others over both axes.
Use it for mixtures of experts that do not fit on one device, or to let each device compute its experts on more tokens at once.
"""

import torch.distributed as dist

from samestep.common.strategy import Run
from samestep.torch_impl import sharded
from samestep.torch_impl.axes.device_mesh import device_mesh, nested
from samestep.torch_impl.axes.expert import exchange_tokens
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.models.experts import divide
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.strategies.c10d import FlatExchange


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    mesh, context = device_mesh(run, device), StepContext(run.mesh.only_axis)
    model = build_fresh_model(run, device, context, lambda whole: exchange_tokens(run, whole, mesh))
    shared, of_experts = divide(model)
    exchanges = [FlatExchange(shared, device, dist.all_reduce)]
    if run.mesh.data > 1:
        data = mesh["data"].get_group()
        exchanges.insert(0, FlatExchange(of_experts, device, lambda flat: dist.all_reduce(flat, group=data)))
    parts = Parts(
        bare=model,
        hardware=hardware,
        context=context,
        exchange=nested(*exchanges),
        global_norm=sharded.total_norm,
        measures=lambda: context.recorder.counted,
    )
    return TrainingProgram(run, parts)
