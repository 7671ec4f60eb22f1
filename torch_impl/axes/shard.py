"""The axis `shard`: parameters, gradients and optimizer state are sharded, and parameters are gathered to compute (FSDP2)."""

import contextlib
from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from samestep.common.strategy import Run
from samestep.torch_impl.axes.device_mesh import Exchange, along
from samestep.torch_impl.gradient_reach import ShardedReach
from samestep.torch_impl.models.experts import divide
from samestep.torch_impl.sharded import free_after_prediction
from samestep.torch_impl.techniques.applied import gathering
from samestep.torch_impl.upstream import beside, sharded_apart


def find_blocks(run: Run, model: nn.Module) -> list[list[nn.Module]]:
    """Returns the modules of each block of a model; FSDP2 gathers the parameters of a block together.

    Args:
        run: The run, whose spec names the blocks.
        model: The model, not yet sharded.
    """
    modules = [model.get_submodule(segment.name.replace("/", ".")) for segment in run.workload.model.facts.blocks]
    # A list of modules has no forward pass that could gather it, so its members are gathered together.
    return [list(module) if isinstance(module, nn.ModuleList) else [module] for module in modules]


def shard(
    run: Run, model: nn.Module, mesh: DeviceMesh, reshard: bool, blocks: Sequence[Sequence[nn.Module]] = ()
) -> None:
    """Shards a model in place, block by block.

    Args:
        run: The run.
        model: The full model on every rank, possibly on the meta device.
        mesh: All ranks.
        reshard: Whether a block is freed after its forward pass, and gathered again for its backward pass.
        blocks: The modules of each block, which is gathered separately from the rest of the model.
    """
    placed, whole = None, along_shard(mesh, run.mesh.replica_axes)
    if run.mesh.parts("stacked") > 1:
        placed = sharded_apart(divide(model)[1], along_shard(mesh, run.mesh.expert_replica_axes))
    for block in [*blocks, model]:
        fully_shard(  # pyrefly: ignore[no-matching-overload]
            block, mesh=whole, reshard_after_forward=reshard, mp_policy=gathering(run), shard_placement_fn=placed
        )
    model.register_forward_hook(free_after_prediction)


def along_shard(mesh: DeviceMesh, replicas: Sequence[str]) -> DeviceMesh:
    """Returns the mesh over which parameters are sharded, preceded by an axis of the replicas of the shards, if there are any.

    Args:
        mesh: All ranks.
        replicas: The axes along which shards are replicated.
    """
    return beside(along(mesh, replicas), mesh["shard"]) if replicas else mesh["shard"]


def agree_on_reached(
    run: Run, models: Sequence[nn.Module], device: torch.device, mesh: DeviceMesh | None = None
) -> Exchange:
    """Returns the context in which ranks agree which parameters got a gradient, for models that may skip some.

    Args:
        run: The run.
        models: The roots of what was sharded or replicated.
        device: The device of this process.
        mesh: The ranks that exchange gradients; None stands for all ranks.
    """
    if not run.workload.model.facts.may_skip:
        return contextlib.nullcontext
    return ShardedReach(models, device, None if mesh is None else mesh.get_group()).exchange
