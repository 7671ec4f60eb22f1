"""Optimizer state spread over ranks that have the same parameters; each rank updates some of them and broadcasts them."""

import heapq
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from samestep.common.workload.optimizers.spec import Shape
from samestep.torch_impl.sharded import full_tensor, local_part


class OwnedOptimizerState:
    """Optimizer state that lies, for each parameter, on the rank that updates it."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        owners: Mapping[nn.Parameter, int],
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Wraps an optimizer that has the state of this rank's parameters.

        Args:
            optimizer: The optimizer.
            owners: The global rank that updates each parameter; parameters that nobody updates go to the first of the group.
            group: The ranks that have the same parameters; None stands for all ranks.
        """
        self._inner, self._owners, self._group = optimizer, owners, group

    def _owner(self, parameter: nn.Parameter) -> int:
        return self._owners.get(parameter, dist.get_process_group_ranks(self._group)[0])

    def local(self, parameter: nn.Parameter) -> dict[str, torch.Tensor] | None:
        """Returns the inner optimizer's state of a parameter that this rank updates, else None."""
        return self._inner.state[parameter] if self._owner(parameter) == dist.get_rank() else None

    def full(self, parameter: nn.Parameter, key: str, shape: Shape) -> torch.Tensor:
        """Returns one state tensor, broadcast from its owner and gathered if it is sharded."""
        if (local := self.local(parameter)) is not None:
            value = local[key]
        else:
            is_alike = shape == tuple(parameter.shape)
            value = torch.empty_like(parameter.detach()) if is_alike else parameter.new_empty(shape)
        dist.broadcast(local_part(value), self._owner(parameter), self._group)
        return full_tensor(value)

    def count(self, parameter: nn.Parameter) -> int:
        """Returns the update count of a parameter, broadcast from its owner."""
        value = torch.tensor(int((self.local(parameter) or {}).get("step", 0)), device=parameter.device)
        dist.broadcast(value, self._owner(parameter), self._group)
        return int(value)


def owners_of(parameters: Sequence[nn.Parameter], ranks: Sequence[int]) -> dict[nn.Parameter, int]:
    """Assigns parameters like ZeroRedundancyOptimizer: the largest one left goes to the rank with the fewest elements.

    Args:
        parameters: The parameters of this rank, the same on all of these ranks.
        ranks: The ranks.
    """
    found, least = dict[nn.Parameter, int](), [(0, place) for place in range(len(ranks))]
    for parameter in sorted(parameters, key=lambda each: local_part(each).numel(), reverse=True):
        size, place = least[0]
        found[parameter] = ranks[place]
        heapq.heapreplace(least, (size + local_part(parameter).numel(), place))
    return found


def update_own(
    optimizer: torch.optim.Optimizer, owners: Mapping[nn.Parameter, int], group: dist.ProcessGroup
) -> OwnedOptimizerState:
    """Makes an optimizer update only the parameters that this rank owns, and broadcast them together after each update.

    Args:
        optimizer: The optimizer of all parameters, before its first update.
        owners: The rank that updates each trained parameter.
        group: The ranks.
    """
    rank = dist.get_rank()
    together = {owner: [each for each in owners if owners[each] == owner] for owner in dict.fromkeys(owners.values())}

    def leave_others(*_: object) -> None:
        for parameter, owner in owners.items():
            if owner != rank:
                parameter.grad = None  # optimizers skip such parameters

    def broadcast(*_: object) -> None:
        with torch.no_grad():
            for owner in sorted(together):
                parts = [local_part(each) for each in together[owner]]
                flat = torch.cat([part.flatten() for part in parts])
                dist.broadcast(flat, owner, group)
                for part, value in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
                    part.copy_(value.view_as(part))

    optimizer.register_step_pre_hook(leave_others)
    optimizer.register_step_post_hook(broadcast)
    return OwnedOptimizerState(optimizer, owners, group)
