"""Tensor parallel: the layers themselves are cut, in pairs by column and by row, so that a pair costs one all-reduce.

Replicated: the batch, norms, biases behind a sum, convolutions. Split: kernels, heads, the vocabulary, tables of rows.
Sent: the activations of each pair all-reduced forward, their gradients backward; with --sequence-parallel all-gathered
and reduce-scattered instead, and held in parts in between.
Use it inside one machine, whose links are fast, for layers that are too large or too slow on one device.
"""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import loss_parallel

from common.config import RunConfig
from common.workload.table import Workload
from torch_impl import sharded
from torch_impl.devices import join_group, use_device
from torch_impl.models.losses import LOSSES
from torch_impl.optimizers import build_optimizer
from torch_impl.program import Parts, TrainingProgram, fresh_model
from torch_impl.tensor_parallel import WholeLogits, loss_over_parts, split_by_tensor


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of one rank."""
    device = use_device(config)
    join_group(config, device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("tensor",))
    model = fresh_model(workload, config, device)
    split_by_tensor(model, workload.model, mesh, bool(config.options["sequence_parallel"]))
    parts = Parts(
        model=WholeLogits(model),
        bare=model,
        optimizer=build_optimizer(workload.optimizer(config), model.parameters()),
        device=device,
        exchange=lambda last: loss_parallel(),
        global_norm=sharded.total_norm,
        loss=loss_over_parts(LOSSES[workload.model.loss]),
        whole=sharded.whole,
        place=sharded.place,
        device_note="one process per device",
    )
    return TrainingProgram(workload, config, parts)
