"""Three dimensions at once: pipelines of stages, each stage split by tensor parallelism, all of it replicated or sharded.

Replicated: what each axis leaves whole. Split: the layers along `pipe`, the inside of layers along `tensor`, the batch
along `data` or `shard`; along `shard` also parameters, gradients and optimizer.
Sent: what `pp`, `tp` and `fsdp` send, each within its own axis.
Use it for models that are too large for any one of them: tensor inside a machine, pipe between machines, data outside.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import loss_parallel

from samestep.common.strategy import Run
from samestep.common.workload.models.reached import may_skip
from samestep.common.workload.pipeline import SCHEDULES
from samestep.torch_impl import sharded, upstream
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.pipeline.pipe import Pipe, scheduled_parts
from samestep.torch_impl.pipeline.stages import Stage, build_stages
from samestep.torch_impl.pipeline.tied import TiedCopies
from samestep.torch_impl.program import TrainingProgram
from samestep.torch_impl.reached import ShardedReach
from samestep.torch_impl.rows.options import PipelineOptions
from samestep.torch_impl.step import norm_over_ranks
from samestep.torch_impl.strategies.fsdp import free_after_prediction
from samestep.torch_impl.techniques.precision import gathering
from samestep.torch_impl.tensor_parallel import split_by_tensor

OUTER = ("data", "shard")


def build_device_mesh(run: Run, device: torch.device) -> DeviceMesh:
    """Arranges the ranks along every axis there is, the tensor axis innermost: neighbours share a machine.

    Args:
        run: What is trained; its mesh has the sizes of the axes.
        device: The device of this process.
    """
    axes = ("pipe", *OUTER, "tensor")
    return init_device_mesh(device.type, tuple(map(run.mesh.axis, axes)), mesh_dim_names=axes)


def distribute(run: Run, stage: Stage, mesh: DeviceMesh) -> None:
    """Splits a stage along `tensor`, then shards it along `shard` or replicates it along `data`, in place.

    Args:
        run: What is trained.
        stage: The full stage.
        mesh: All ranks.
    """
    if mesh["tensor"].size() > 1:
        split_by_tensor(stage.model, run.workload.model, mesh["tensor"])
    if mesh["shard"].size() > 1:
        fully_shard(stage, mesh=mesh["shard"], reshard_after_forward=False, mp_policy=gathering(run))
        stage.register_forward_hook(free_after_prediction)
    elif mesh["data"].size() > 1:
        upstream.replicate(stage, mesh["data"])
        stage.register_forward_hook(free_after_prediction)


def build(run: Run[PipelineOptions]) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    mesh = build_device_mesh(run, device)
    (outer,) = [mesh[axis] for axis in OUTER if mesh[axis].size() > 1] or [mesh["data"]]
    stage_ranks = SCHEDULES[run.options.schedule].stage_ranks(run.mesh.axis("pipe"))
    stages = build_stages(run, device, stage_ranks, mesh["pipe"].get_local_rank())
    for stage in stages.values():
        distribute(run, stage, mesh)
    group = mesh["pipe"].get_group()
    ranks = dist.get_process_group_ranks(group)
    reports = mesh["tensor"].get_local_rank() == 0
    holders = tuple(ranks[rank] for rank in stage_ranks)
    tied = TiedCopies(run, stages, holders, group)
    pipe = Pipe(stages, holders, device, getattr(torch, run.dtype), tied, reports)
    counts = reports and outer.get_local_rank() == 0
    agreeing = contextlib.nullcontext
    if may_skip(run.workload.model) and outer.size() > 1:
        agreeing = ShardedReach(list(stages.values()), device, outer.get_group()).exchange

    @contextlib.contextmanager
    def exchange(last: bool) -> Iterator[None]:
        with agreeing(last), tied.exchange(last), loss_parallel():
            yield

    parts = dataclasses.replace(
        scheduled_parts(run, pipe, hardware, outer.size(), group),
        shard=(outer.get_local_rank(), outer.size()),
        exchange=exchange,
        global_norm=lambda own: norm_over_ranks(counts * sharded.total_norm(tied.counted(own)) ** 2),
    )
    return TrainingProgram(run, parts)
