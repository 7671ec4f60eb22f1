"""Three dimensions at once: pipelines of stages, each stage cut by tensor parallelism, all of it replicated or sharded.

Replicated: what each axis leaves whole. Split: the layers along `pipe`, the inside of layers along `tensor`, the batch
along `data` or `shard`; along `shard` also parameters, gradients and optimizer.
Sent: what `pp`, `tp` and `fsdp` send, each within its own axis.
Use it for models that are too large for any one of them: tensor inside a machine, pipe between machines, data outside.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import loss_parallel

from common.config import RunConfig
from common.evidence.laws.pipelined import holders_of
from common.mesh import Mesh
from common.workload.table import Workload
from torch_impl import sharded, upstream
from torch_impl.devices import join_group, use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.pipeline_program import ForwardBackward, Pipe, PipelineParts, PipelineProgram, mean_loss
from torch_impl.scheduled import scheduled
from torch_impl.stages import Stage, build_stages, named_weights
from torch_impl.strategies.fsdp import free_after_prediction
from torch_impl.tensor_parallel import split_by_tensor
from torch_impl.timeline import Timeline

OUTER = ("data", "shard")


def device_mesh(config: RunConfig, device: torch.device) -> DeviceMesh:
    """The ranks along every axis there is, the tensor axis innermost: neighbours share a machine."""
    mesh = Mesh.parse(config.mesh or "pipe=1")
    axes = ("pipe", *OUTER, "tensor")
    return init_device_mesh(device.type, tuple(map(mesh.axis, axes)), mesh_dim_names=axes)


def spread(workload: Workload, stage: Stage, mesh: DeviceMesh) -> None:
    """Cuts a stage along `tensor`, then shards it along `shard` or replicates it along `data`, in place."""
    if mesh["tensor"].size() > 1:
        split_by_tensor(stage.model, workload.model, mesh["tensor"])
    if mesh["shard"].size() > 1:
        fully_shard(stage, mesh=mesh["shard"], reshard_after_forward=False)
        stage.register_forward_hook(free_after_prediction)
    elif mesh["data"].size() > 1:
        upstream.replicate(stage, mesh["data"])
        stage.register_forward_hook(free_after_prediction)


def under_parallel_loss(forward_backward: ForwardBackward, replicas: int) -> ForwardBackward:
    """A pass whose logits may lie in parts, and whose gradients are averaged over replicas."""

    def run(x: torch.Tensor | None, y: torch.Tensor | None) -> torch.Tensor | None:
        with loss_parallel():
            loss = forward_backward(x, y)
        return loss if loss is None else loss / replicas

    return run


def build(workload: Workload, config: RunConfig) -> PipelineProgram:
    """The program of one rank."""
    device = use_device(config)
    join_group(config, device)
    mesh = device_mesh(config, device)
    (outer,) = [mesh[axis] for axis in OUTER if mesh[axis].size() > 1] or [mesh["data"]]
    ranks = dist.get_process_group_ranks(mesh["pipe"].get_group())
    stages = build_stages(workload, config, device, holders_of(config), mesh["pipe"].get_local_rank())
    for stage in stages.values():
        spread(workload, stage, mesh)
    pipe = Pipe(stages, tuple(ranks[holder] for holder in holders_of(config)), device)
    mean, replicas = mean_loss(workload, config), outer.size()

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return sharded.whole(mean(logits, targets)) * replicas

    timeline = Timeline()
    passed = scheduled(config, pipe, loss, timeline, mesh["pipe"].get_group())
    first = mesh["tensor"].get_local_rank() == 0
    counts = outer.get_local_rank() == 0
    parts = PipelineParts(
        pipe=pipe,
        optimizer=build_optimizer(workload.optimizer(config), [w.parameter for w in named_weights(stages).values()]),
        forward_backward=under_parallel_loss(passed, replicas),
        shard=(outer.get_local_rank(), replicas),
        reports=first,
        whole=sharded.whole,
        place=sharded.place,
        squared_norm=lambda own: counts * sharded.total_norm(own) ** 2,
        measures=timeline.measures,
    )
    return PipelineProgram(workload, config, parts)
