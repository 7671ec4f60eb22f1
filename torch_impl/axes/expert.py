"""The axis `expert`: every device has some of the experts of each block, and takes different examples.

Each token is sent to the devices that have its experts, and their outputs are sent back: an all-to-all whose parts are as
unequal as the router makes them, so no token is dropped. A rank computes its experts on the tokens of all ranks, in the order
of the examples, like a single device.

Shape suffixes: S slots of a rank (a slot is a token and an expert that it is sent to); R slots of all ranks for the experts of
this rank; D width, E experts, e experts of a rank, N ranks.

References:
    Lepikhin et al., arXiv 2006.16668 (GShard); Gale et al., arXiv 2211.15841 (dropless).
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh

from samestep.common.strategy import Run
from samestep.common.workload.routing import AWAY, TAKEN
from samestep.torch_impl.axes.device_mesh import Exchange
from samestep.torch_impl.models.experts import Experts, Stacked
from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.sharded import cut

Compute = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Given tokens in the order of their experts [S, D] and the number of tokens of each expert [E], returns outputs [S, D]."""


class TokenExchange:
    """Calls experts that are split over several ranks as if all were on this rank."""

    def __init__(self, compute: Compute, group: dist.ProcessGroup, recorder: SendRecorder, block: int) -> None:
        """Stores what is needed to call the experts of other ranks.

        Args:
            compute: Computes the experts of this rank.
            group: The ranks that share the experts of a block.
            recorder: Counts the tokens of an observed step.
            block: The number of the block, under which tokens are counted.
        """
        self._compute, self._group, self._recorder, self._block = compute, group, recorder, block

    def __call__(self, x_SD: torch.Tensor, counts_E: torch.Tensor) -> torch.Tensor:
        """Sends tokens to the ranks of their experts and returns the outputs of the experts, [S, D].

        Args:
            x_SD: The tokens of the first expert, then those of the second, and so on.
            counts_E: The number of tokens of each expert.
        """
        ranks = self._group.size()
        received_Ne = all_to_all_single(counts_E, None, None, self._group).unflatten(0, (ranks, -1))
        to_ranks, from_ranks = counts_E.unflatten(0, (ranks, -1)).sum(1).tolist(), received_Ne.sum(1).tolist()
        taken, away = sum(from_ranks), sum(to_ranks) - to_ranks[self._group.rank()]
        self._recorder.count({TAKEN: taken, f"{TAKEN}/{self._block}": taken, AWAY: away})
        x_RD = self._exchange(x_SD, to_ranks, from_ranks)
        experts_Ne = torch.arange(received_Ne.shape[1], device=x_SD.device).expand(received_Ne.shape)
        order_R = experts_Ne.flatten().repeat_interleave(received_Ne.flatten()).argsort(stable=True)
        out_RD = self._compute(x_RD.index_select(0, order_R), received_Ne.sum(0))
        return self._exchange(out_RD.index_select(0, order_R.argsort()), from_ranks, to_ranks)

    def _exchange(self, rows: torch.Tensor, to_ranks: Sequence[int], from_ranks: Sequence[int]) -> torch.Tensor:
        """Sends each rank its rows, which are ordered by rank, and returns the rows that this rank is sent."""
        return all_to_all_single_autograd(rows, list(from_ranks), list(to_ranks), self._group)


def exchange_tokens(run: Run, model: nn.Module, mesh: DeviceMesh) -> None:
    """Leaves each rank some of the experts of a model or a stage, and sends tokens to the ranks of their experts, in place.

    Args:
        run: The run; with one rank along `expert`, nothing changes.
        model: The model, or the part that other axes left, which is the same on every rank.
        mesh: All ranks.
    """
    if run.mesh.axis("expert") == 1:
        return
    group = mesh["expert"].get_group()
    for module in model.modules():
        if isinstance(module, Experts):
            module.compute = TokenExchange(module.compute, group, module.context.recorder, module.block)
        if isinstance(module, Stacked):
            for name in [name for name, _ in module.named_parameters(recurse=False)]:
                cut(module, name, mesh, "expert", 0)


def divided(parameters: Sequence[nn.Parameter], count: int) -> Exchange:
    """Returns the context that divides the gradients of experts at the end of a step, as they were averaged over too few ranks.

    Args:
        parameters: The parameters of experts.
        count: The divisor.
    """

    @contextlib.contextmanager
    def exchange(last: bool) -> Iterator[None]:
        yield
        for parameter in parameters if last else ():
            parameter.grad /= count  # pyrefly: ignore[unsupported-operation, bad-assignment]

    return exchange
