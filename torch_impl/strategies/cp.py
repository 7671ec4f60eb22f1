"""Context parallel: each rank takes some positions of every example; attention exchanges heads, or keys and values.

Replicated: parameters, gradients, optimizer state. Split: the positions of each example along `context`, the batch along `data`.
Sent: in each attention, queries, keys, values and outputs by all-to-all, forward and backward; or keys and values to all ranks,
at once or around a ring. After the backward pass, the flattened gradient is all-reduced over both axes, because the positions of
each rank contribute different terms to the same sum.
Use it for sequences whose activations do not fit on one device.
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
