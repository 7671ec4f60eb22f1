"""Context parallel: each rank takes some positions of every example; attentions exchange heads, or keys and values.

Replicated: parameters, gradients, optimizer. Split: the positions of each example along `context`, the batch along `data`.
Sent: in each attention queries, keys, values and outputs, all-to-all, forward and backward, or keys and values to all ranks,
at once or around a ring; once the backward pass is done, the flat gradient, all-reduced over both axes, since other positions
are other terms of the same sum.
Use it for sequences whose activations do not fit one device.
"""

from samestep.common.strategy import Run
from samestep.torch_impl.axes.context import exchange_positions
from samestep.torch_impl.axes.device_mesh import device_mesh
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.strategies.c10d import FlatExchange
from samestep.torch_impl.techniques.applied import summing


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    mesh, context = device_mesh(run, device), StepContext(run.mesh.only_axis)
    model = build_fresh_model(run, device, context)
    exchange_positions(run, model, mesh)
    exchange = FlatExchange(model.parameters(), device, summing(run), run.workload.model.facts.may_skip)
    parts = Parts(bare=model, hardware=hardware, context=context, exchange=exchange)
    return TrainingProgram(run, parts)
