"""Which parameters got a gradient in a step, where some may not: the ranks agree, because each has other examples.

Torch's optimizers leave a parameter without a gradient as it is: it does not decay, its momentum stays, and its updates are
not counted. On one device these are the parameters that no example of the batch reaches. Several ranks do the same: a parameter
that any rank's examples reach is updated on all ranks, and one that no example reaches on none. DDP does so with
`find_unused_parameters`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from samestep.torch_impl.upstream import reduce_zeros


def agree(reached: Sequence[bool], device: torch.device, group: dist.ProcessGroup | None = None) -> list[bool]:
    """Finds out which parameters any rank's examples reached.

    Args:
        reached: Whether each parameter got a gradient on this rank.
        device: The device of the parameters.
        group: The ranks; all there are, unless given.
    """
    flags = torch.tensor(reached, dtype=torch.int32, device=device)
    dist.all_reduce(flags, group=group)
    return [count > 0 for count in flags.tolist()]


def hook_gathered(model: nn.Module, hook_of: Callable[[nn.Parameter], Callable[[torch.Tensor], None]]) -> None:
    """Registers a hook to be called whenever a gathered parameter gets a gradient; call it before the first forward pass.

    Args:
        model: The model, sharded from its root on.
        hook_of: Makes the hook of a parameter, given its sharded form.
    """
    for block in [each for each in model.modules() if isinstance(each, FSDPModule)]:
        _watch(block, hook_of)


def _watch(block: nn.Module, hook_of: Callable[[nn.Parameter], Callable[[torch.Tensor], None]]) -> None:
    places = [(module, name) for module in block.modules() for name, _ in module.named_parameters(recurse=False)]
    at_rest = {place: place[0].get_parameter(place[1]) for place in places}
    watched: set[nn.Parameter] = set()

    @torch.compiler.disable
    def follow(*_: object) -> None:
        for (module, name), parameter in at_rest.items():
            gathered = module.get_parameter(name)  # those of an inner block are not gathered yet
            if parameter.requires_grad and gathered is not parameter and gathered not in watched:
                watched.add(gathered)
                gathered.register_post_accumulate_grad_hook(hook_of(parameter))

    block.register_forward_pre_hook(follow)


class ShardedReach:
    """Follows the gradients of what `fully_shard` gathers, and drops the gradients of parameters that no rank's examples reached.

    `fully_shard` exchanges zeros for what this rank's examples did not reach, so that all ranks exchange the same.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device, group: dist.ProcessGroup | None) -> None:
        """Watches sharded modules; to be done before their first forward pass.

        Args:
            modules: What was sharded, each from its root on.
            device: The device of the parameters.
            group: The ranks among which the gradients are exchanged; None stands for all there are.
        """
        self._device, self._group = device, group
        self._parameters = list(dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad))
        self._numbers = {parameter: number for number, parameter in enumerate(self._parameters)}
        self._reached = [False] * len(self._parameters)
        for module in modules:
            reduce_zeros(module)
            hook_gathered(module, lambda at_rest: functools.partial(self._note, self._numbers[at_rest]))

    def _note(self, number: int, gathered: torch.Tensor) -> None:
        self._reached[number] = True

    @contextlib.contextmanager
    def exchange(self, last: bool) -> Iterator[None]:
        """Makes the context of a micro-batch's passes; after the last of a step, gradients that no rank reached are dropped.

        Args:
            last: Whether it is the last micro-batch.
        """
        yield
        if last:
            agreed = agree(self._reached, self._device, self._group)
            self._reached = [False] * len(self._parameters)
            for parameter, is_reached in zip(self._parameters, agreed, strict=True):
                if not is_reached:
                    parameter.grad = None
