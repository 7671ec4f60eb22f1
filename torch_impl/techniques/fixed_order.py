"""The fixed order: gradients are added up by the tree of `common/tree.py`, within a rank and over ranks.

autograd adds the gradient of each micro-batch to the previous ones. Here a hook removes each gradient as soon as it is computed,
and replaces the last one by the sum, before the strategy sees it. The reductions of gloo and NCCL begin each piece at a different
rank. So here pieces are sent, in an all-to-all, to the rank that adds them up.

References:
    torch.Tensor.register_post_accumulate_grad_hook (torch 2.13): DDP and FSDP2 look at a gradient after such hooks.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from samestep.common.strategy import Run
from samestep.common.tree import Tree, add_up
from samestep.torch_impl.gradient_reach import hook_gathered
from samestep.torch_impl.upstream import reduce_scatter_by


class _Passes:
    """Adds up the gradients of a parameter from all passes of a step."""

    def __init__(self, num_passes: int) -> None:
        self._tree = Tree(torch.Tensor.add_)
        self._left = self._num_passes = num_passes

    def __call__(self, parameter: torch.Tensor) -> None:
        """Removes the gradient of a pass; after the last pass, replaces it by the sum."""
        assert parameter.grad is not None
        self._tree.push(parameter.grad)
        self._left -= 1
        parameter.grad = None if self._left else self._tree.pop()
        self._left = self._left or self._num_passes


def order_passes(run: Run, model: nn.Module) -> None:
    """Makes the gradients of the micro-batches of a rank add up in the fixed order, if the run asks for it.

    Args:
        run: The run.
        model: The model, which `fully_shard` may have sharded.
    """
    if run.techniques.fixed_order is None or run.passes == 1:
        return
    if isinstance(model, FSDPModule):
        hook_gathered(model, lambda _: _Passes(run.passes))
        return
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_Passes(run.passes))


def sum_pieces(flat: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Sums a flat tensor over all ranks; returns this rank's piece of the sum, one of as many as there are ranks.

    Args:
        flat: The tensor, whose length is a multiple of the number of ranks.
        group: The ranks; None stands for all ranks.
    """
    received = torch.empty_like(flat)
    dist.all_to_all_single(received, flat, group=group)
    return add_up(received.chunk(dist.get_world_size(group)), torch.add)


def all_reduce(flat: torch.Tensor) -> None:
    """Sums a flat tensor over all ranks, in place."""
    whole = nn.functional.pad(flat, (0, -len(flat) % dist.get_world_size()))
    own = sum_pieces(whole)
    dist.all_gather_single(whole, own)
    flat.copy_(whole[: len(flat)])


def _sum_bucket(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sums the gradients of a bucket. This is the communication hook; DDP does not divide what it returns."""
    all_reduce(bucket.buffer())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def order_ranks(run: Run, model: nn.Module) -> bool:
    """Makes DDP or `fully_shard` sum the gradients of all ranks in the fixed order; returns whether the run asks for it.

    Args:
        run: The run.
        model: The wrapped or sharded model.
    """
    if run.techniques.fixed_order is None:
        return False
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook(None, _sum_bucket)
    else:
        reduce_scatter_by(model, sum_pieces)
    return True
