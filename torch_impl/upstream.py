"""Uses of private parts of torch and DeepSpeed, one per function; tests/torch_impl/test_upstream.py notices changes."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from samestep.common.errors import Unavailable

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.optim import ZeroRedundancyOptimizer  # its import takes a third of a second
    from torch.profiler import profile


def ddp_logging_data(model: DistributedDataParallel) -> dict[str, float]:
    """Returns DDP's own averages over the steps that it samples: the first ten, then every hundredth (torch 2.13)."""
    return model._get_ddp_logging_data()


def rank_of_parameter(optimizer: "ZeroRedundancyOptimizer") -> Mapping[nn.Parameter, int]:
    """Returns parameter -> the rank that updates it and keeps its optimizer state (torch 2.13)."""
    return optimizer._param_to_rank  # pyrefly: ignore[missing-attribute]


def absent_store() -> dist.Store:
    """Returns the store of the backend "fake", which completes each collective at once without data (torch 2.13)."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # here: its import registers the backend

    return FakeStore()


def is_in_backward() -> bool:
    """Returns whether this thread is in a backward pass of autograd (torch 2.13)."""
    return torch._C._current_graph_task_id() != -1


def process_group(argument: Any) -> dist.ProcessGroup:
    """Returns the group that an operator was given, by name or as a scripted object (torch 2.13)."""
    if isinstance(argument, str):
        return dist.distributed_c10d._resolve_process_group(argument)  # pyrefly: ignore[bad-argument-type]
    return argument if isinstance(argument, dist.ProcessGroup) else dist.ProcessGroup.unbox(argument)


def registered_parameters(module: nn.Module) -> Mapping[str, nn.Parameter | None]:
    """Returns a live view of a module's own parameters by name, in which replaced ones appear (torch 2.13).

    `module.parameters(recurse=False)` takes about ten times as long, too long to call before every operator of a step.
    """
    return module._parameters


def registered_buffers(module: nn.Module) -> Mapping[str, torch.Tensor | None]:
    """Returns a live view of a module's own buffers by name (torch 2.13); see `registered_parameters`."""
    return module._buffers


def end_of_prediction(model: "FSDPModule") -> None:
    """Frees what a forward pass gathered and resets its recorded order, if no backward pass follows.

    Otherwise the next backward pass would gather one block too many. torch 2.11 cannot reset the order, but can free.
    """
    from torch.distributed.fsdp import FSDPModule

    forget = getattr(model, "reset_iter_state", None)
    blocks = [module for module in model.modules() if isinstance(module, FSDPModule)]  # pyrefly: ignore[missing-attribute]
    for free in [forget] if forget else [block.reshard for block in blocks]:
        free()


def reduce_zeros(model: nn.Module) -> None:
    """Makes `fully_shard` exchange zeros for parameters without a gradient, as ranks may lack different ones (torch 2.13).

    Raises:
        Unavailable: An older torch cannot do so.
    """
    from torch.distributed.fsdp import FSDPModule

    for block in [module for module in model.modules() if isinstance(module, FSDPModule)]:
        switch = getattr(block, "set_reduce_scatter_unused_params", None)
        if switch is None:
            raise Unavailable(
                "sharding a model whose parameters may lack gradients needs torch 2.13 or later: pip install -U torch"
            )
        switch(True, recurse=False)


def reduce_scatter_by(model: nn.Module, sum_pieces: Callable[[torch.Tensor, dist.ProcessGroup], torch.Tensor]) -> None:
    """Makes `fully_shard` sum gradients by a function, without dividing them (torch 2.13).

    Args:
        model: The sharded model.
        sum_pieces: Given a flat tensor and the ranks, returns the sum of this rank's piece.
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

    class Ours(DefaultReduceScatter):
        def __call__(
            self,
            output_tensor: torch.Tensor,
            input_tensor: torch.Tensor,
            group: dist.ProcessGroup,
            op: object,
            async_op: bool = False,
        ) -> None:
            output_tensor.copy_(sum_pieces(input_tensor, group))

    for block in [module for module in model.modules() if isinstance(module, FSDPModule)]:
        block.set_custom_reduce_scatter(Ours())
        block.set_gradient_divide_factor(1.0)


def sharded_apart(parameters: Iterable[nn.Parameter], mesh: "DeviceMesh") -> Callable[[nn.Parameter], Any]:
    """Returns a placement function with which `fully_shard` shards some parameters over different ranks (torch 2.13).

    Args:
        parameters: The parameters.
        mesh: The ranks over which they are sharded, preceded by an axis of the replicas of the shards, if there are any.
    """
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult

    apart = set(parameters)
    ranks = FSDPMeshInfo(mesh, shard_mesh_dim=0) if mesh.ndim == 1 else HSDPMeshInfo(mesh, 1, 0)
    return lambda parameter: ShardPlacementResult(None, ranks) if parameter in apart else None


def replicate(module: nn.Module, mesh: "DeviceMesh", apart: Iterable[nn.Parameter]) -> None:
    """Replicates a module with FSDP2 and nothing sharded, which works inside pipelines (torch 2.13).

    Args:
        module: The module to replicate, in place.
        mesh: The ranks that hold a replica.
        apart: The parameters that are left alone.
    """
    from torch.distributed._composable.replicate_with_fsdp import replicate

    replicate(module, mesh=mesh, ignored_params=set(apart))


def before_other_post_hooks(optimizer: torch.optim.Optimizer, hook: Callable[..., None]) -> None:
    """Registers a hook that is called after each step, before the hooks that are already registered (torch 2.13).

    Args:
        optimizer: The optimizer.
        hook: A function with the arguments of such hooks.
    """
    handle = optimizer.register_step_post_hook(hook)
    optimizer._optimizer_step_post_hooks.move_to_end(handle.id, last=False)  # pyrefly: ignore[missing-attribute]


def flattened(mesh: "DeviceMesh", name: str) -> "DeviceMesh":
    """Returns all ranks of a mesh of several axes as one axis (torch 2.13).

    Args:
        mesh: The mesh to flatten.
        name: The name of the new axis.
    """
    return mesh._flatten(name)


def beside(outer: "DeviceMesh", inner: "DeviceMesh") -> "DeviceMesh":
    """Returns the mesh with the axes of two meshes, which are slices of the same mesh (torch 2.13).

    Args:
        outer: The mesh with the first axes.
        inner: The mesh with the axes that follow.
    """
    return type(outer)._concatenate([outer, inner])


def without_shared_memory_op() -> None:
    """Keeps DeepSpeed from compiling an operator that only inference uses, which takes half a minute in the first run (0.19)."""
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def outside_modes() -> contextlib.AbstractContextManager[object]:
    """Returns a context in which no mode sees what is dispatched (torch 2.13), for looks at tensors outside the step."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def saved_tensors_hooks_on_top() -> tuple[Callable[[torch.Tensor], object], Callable[[object], torch.Tensor]]:
    """Returns the innermost hooks for saved tensors, pack and unpack, which newly entered hooks would replace (torch 2.13)."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


def num_graphs() -> int:
    """Returns how many graphs torch.compile has compiled in this process, including recompilations (torch 2.13)."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def all_threads() -> Any:
    """Returns the setting that makes torch.profiler watch every thread, including those of RPC and our replicas (torch 2.13)."""
    from torch._C._profiler import _ExperimentalConfig

    return _ExperimentalConfig(profile_all_threads=True)


def kineto_events(seen: "profile") -> list[tuple[str, int, int, bool, Sequence[object], int]]:
    """Returns the events of a profile (torch 2.13).

    Each event has its name, start and end in ns, whether it is a range of Python code, its arguments, and its thread number.
    """
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    found = seen.profiler.kineto_results.events()
    return [
        (e.name(), e.start_ns(), e.end_ns(), e.is_user_annotation(), e.concrete_inputs(), e.device_resource_id())
        for e in found
    ]


def without_numbers() -> contextlib.AbstractContextManager[object]:
    """Returns a context in which operations compute only dtypes and shapes (torch 2.13); its tensors have no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)
