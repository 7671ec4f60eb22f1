"""Tensor parallel: the layers themselves are split, in pairs by column and by row, so a pair costs one all-reduce.

Replicated: the batch, norms, convolutions, biases added after an all-reduce. Split: kernels, heads, the vocabulary, and tables
by rows.
Sent: the activations of each pair, all-reduced forward, and their gradients backward; with --sequence-parallel, both are
all-gathered and reduce-scattered instead, and stay sharded between the pairs.
Use it within one machine, whose links are fast, for layers that are too large or too slow for one device.
"""

from torch.distributed.tensor.parallel import loss_parallel

from samestep.common.strategy import Run
from samestep.torch_impl import sharded
from samestep.torch_impl.axes.device_mesh import device_mesh
from samestep.torch_impl.axes.tensor import FullLogits, split_by_tensor
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.models import summed_loss
from samestep.torch_impl.models.transformer import sequence_parallel_plan
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.rows.options import TensorOptions
from samestep.torch_impl.step_context import StepContext


def build(run: Run[TensorOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    mesh = device_mesh(run, device)
    context = StepContext(run.mesh.only_axis)
    spec, model = run.workload.model, build_fresh_model(run, device, context)
    split_by_tensor(run, model, mesh, sequence_parallel_plan(spec) if run.options.sequence_parallel else None)
    parts = Parts(
        bare=model,
        hardware=hardware,
        context=context,
        model=FullLogits(model),
        exchange=lambda last: loss_parallel(),
        global_norm=sharded.total_norm,
        loss=lambda logits, targets: sharded.full_tensor(summed_loss(spec)(logits, targets)),
    )
    return TrainingProgram(run, parts)
