"""Makes ranks agree which parameters got a gradient in a step, for models in which some may get none.

torch's optimizers leave a parameter without a gradient unchanged: it does not decay, its momentum stays, and no update is
counted. On one device, these are the parameters that no example of the batch reaches. Several ranks have to do the same, although
each has different examples: a parameter that any rank's examples reach is updated on all ranks, and a parameter that no example
reaches is updated on none. DDP does so with `find_unused_parameters`.
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
    """Returns whether the examples of any rank reached each parameter.

    Args:
        reached: Whether each parameter got a gradient on this rank.
        device: The device of the parameters.
        group: The ranks that agree; None stands for all ranks.
    """
    flags = torch.tensor(reached, dtype=torch.int32, device=device)
    dist.all_reduce(flags, group=group)
    return [count > 0 for count in flags.tolist()]


def hook_gathered(model: nn.Module, hook_of: Callable[[nn.Parameter], Callable[[torch.Tensor], None]]) -> None:
    """Registers a hook to be called whenever a gathered parameter gets a gradient; call it before the first forward pass.

    Args:
        model: The root of the sharded model.
        hook_of: Returns the hook for a parameter, given its sharded form.
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
            gathered = module.get_parameter(name)  # parameters of an inner block are not gathered yet
            if parameter.requires_grad and gathered is not parameter and gathered not in watched:
                watched.add(gathered)
                gathered.register_post_accumulate_grad_hook(hook_of(parameter))

    block.register_forward_pre_hook(follow)


class ShardedReach:
    """Follows the gradients of parameters that `fully_shard` gathers, and drops those of parameters that no example reached.

    For parameters that this rank's examples did not reach, `fully_shard` exchanges zeros, so all ranks exchange the same.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device, group: dist.ProcessGroup | None) -> None:
        """Watches sharded modules; create it before their first forward pass.

        Args:
            modules: The roots of the sharded modules.
            device: The device of the parameters.
            group: The ranks that exchange the gradients; None stands for all ranks.
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
        """Returns the context of the passes of a micro-batch; after the last one, drops gradients that no example reached.

        Args:
            last: Whether it is the last micro-batch of the step.
        """
        yield
        if last:
            agreed = agree(self._reached, self._device, self._group)
            self._reached = [False] * len(self._parameters)
            for parameter, is_reached in zip(self._parameters, agreed, strict=True):
                if not is_reached:
                    parameter.grad = None
