"""Several axes at once: pipelines of stages, each split within its layers, by positions and experts, and replicated or sharded.

Replicated: along each axis, everything that it does not split. Split: the layers along `pipe`, the inside of layers along
`tensor`, positions along `context`, experts along `expert`, the batch along `data`, `shard` and `expert`; along `shard` also
parameters, gradients and optimizer state; with `--shard-optimizer`, the optimizer state of replicas, whole parameters to a rank.
Sent: what `pp`, `tp`, `cp`, `ep` and `fsdp` send, each along its own axis.
Use it for models too large for any single axis: `tensor` within a machine, `pipe` between machines, `data` outermost.
"""

import dataclasses
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import loss_parallel

from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.torch_impl import sharded
from samestep.torch_impl.axes.context import exchange_positions
from samestep.torch_impl.axes.data import replicate
from samestep.torch_impl.axes.device_mesh import Exchange, along, device_mesh, nested
from samestep.torch_impl.axes.expert import divided, exchange_tokens
from samestep.torch_impl.axes.pipe import build_pipe, scheduled_parts
from samestep.torch_impl.axes.shard import agree_on_reached, shard
from samestep.torch_impl.axes.tensor import split_by_tensor
from samestep.torch_impl.devices import join_group, own_part, use_device
from samestep.torch_impl.local_state import build_local_state
from samestep.torch_impl.models.experts import divide
from samestep.torch_impl.optimizers.owned import owners_of, update_own
from samestep.torch_impl.pipeline.stages import Stage
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.rows.options import HybridOptions
from samestep.torch_impl.step import norm_over_ranks
from samestep.torch_impl.strategies.c10d import FlatExchange


def distribute(run: Run, stage: Stage, mesh: DeviceMesh) -> None:
    """Splits a stage along one axis after another, in place; each axis splits what the previous ones left.

    Args:
        run: The run.
        stage: The full stage.
        mesh: All ranks.
    """
    split_by_tensor(run, stage.model, mesh)
    exchange_positions(run, stage.model, mesh)
    exchange_tokens(run, stage.model, mesh)
    if run.mesh.shard > 1:
        shard(run, stage, mesh, reshard=False)
    elif run.mesh.replica_axes:
        apart = divide(stage)[1] if run.mesh.axis("expert") > 1 else []
        replicate(stage, along(mesh, run.mesh.replica_axes), apart)


def average_experts(run: Run, stages: Sequence[Stage], mesh: DeviceMesh, device: torch.device) -> Exchange:
    """Returns the context that averages the gradients of experts over all ranks that take different examples.

    If experts are sharded as well, torch already averages their gradients along all axes except `expert`.

    Args:
        run: The run.
        stages: The stages of this rank, after `distribute`.
        mesh: All ranks.
        device: The device of this process.
    """
    of_experts = [parameter for stage in stages for parameter in divide(stage)[1]]
    if run.mesh.shard > 1:
        return divided(of_experts, run.mesh.axis("expert"))
    mean = divided(of_experts, own_part(run).count)
    if not of_experts or not (replicas := run.mesh.expert_replica_axes):
        return mean
    group = along(mesh, replicas).get_group()
    return nested(mean, FlatExchange(of_experts, device, lambda flat: dist.all_reduce(flat, group=group)))


def build(run: Run[HybridOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    mesh = device_mesh(run, device)
    reports = run.mesh.part(dist.get_rank(), "features") == 0
    stage_ranks = SCHEDULES[run.options.schedule].stage_ranks(run.mesh.pipe)
    pipe = build_pipe(run, device, stage_ranks, mesh["pipe"].get_group(), reports)
    stages = list(pipe.stages.values())
    for stage in stages:
        distribute(run, stage, mesh)
    exchanges: list[Exchange] = [pipe.copies.exchange, lambda last: loss_parallel()]
    if run.mesh.axis("expert") > 1:
        exchanges.append(average_experts(run, stages, mesh, device))
    # If the mesh had these axes as one, other groups would add up the norms of experts (torch 2.13).
    if run.workload.model.facts.may_skip and run.mesh.batch_axes:
        exchanges.insert(0, agree_on_reached(run, stages, device, along(mesh, run.mesh.batch_axes)))
    counts = reports and own_part(run).is_first
    parts = dataclasses.replace(
        scheduled_parts(run, pipe, hardware),
        exchange=nested(*exchanges),
        global_norm=lambda own: norm_over_ranks(counts * sharded.total_norm(pipe.copies.counted(own)) ** 2),
    )
    return TrainingProgram(run, spread_optimizer(run, stages, parts, mesh) if run.options.shard_optimizer else parts)


def spread_optimizer(run: Run, stages: Sequence[Stage], parts: Parts, mesh: DeviceMesh) -> Parts:
    """Spreads the optimizer state of a rank's stages over the ranks that have the same stages.

    Args:
        run: The run.
        stages: The stages of this rank, after `distribute`.
        parts: The parts of the program.
        mesh: All ranks.
    """
    optimizer, group = parts.optimizer, along(mesh, run.mesh.replica_axes).get_group()
    assert optimizer is not None
    state = build_local_state(run, optimizer, *(stage.model for stage in stages))
    trained = list(dict.fromkeys(weight.parameter for weight in state.trained.values()))
    owners = owners_of(trained, dist.get_process_group_ranks(group))
    owned = dataclasses.replace(state, optimizer_state=update_own(optimizer, owners, group))
    return dataclasses.replace(parts, local_state=owned)
