"""Records how a forward pass uses the modules of a user's model: how often, and between which of them gradients flow."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

from samestep.common.workload.models.description_report import EXAMPLES
from samestep.common.workload.models.findings import Use
from samestep.torch_impl.models.inputs import Inputs, tensors

_Seen = tuple[list[torch.Tensor], list[torch.Tensor]]
"""The inputs and the outputs of a call."""


def describe_uses(model: nn.Module, inputs: Inputs, paths: Iterable[str]) -> dict[str, Use]:
    """Returns how a step uses some modules, by neutral path; one that the forward pass does not call is used as any other.

    Args:
        model: The model, in evaluation.
        inputs: `EXAMPLES` examples.
        paths: The paths of the modules, neutral ones.
    """
    calls: dict[str, list[_Seen]] = {path: [] for path in paths}
    with torch.enable_grad(), contextlib.ExitStack() as hooks:
        for path, seen in calls.items():
            for each in _called(model.get_submodule(path.replace("/", "."))):
                hooks.enter_context(_removed(each.register_forward_hook(_keep(seen), with_kwargs=True)))
        model(inputs)
    modules = {path: model.get_submodule(path.replace("/", ".")) for path in calls}
    return {path: _use(modules[path], seen) for path, seen in calls.items() if seen}


def _called(module: nn.Module) -> Iterable[nn.Module]:
    """A list of modules is never called itself."""
    return module if isinstance(module, nn.ModuleList) else [module]


@contextlib.contextmanager
def _removed(handle: torch.utils.hooks.RemovableHandle) -> Iterator[None]:
    yield
    handle.remove()


def _keep(seen: list[_Seen]) -> Callable[..., None]:
    def keep(module: nn.Module, args: object, kwargs: object, outputs: object) -> None:
        seen.append((tensors((args, kwargs)), tensors(outputs)))

    return keep


def _use(module: nn.Module, calls: list[_Seen]) -> Use:
    positions = [1] * len(calls)
    if isinstance(module, nn.Linear):
        positions = [inputs[0].numel() // (module.in_features * EXAMPLES) for inputs, _ in calls]
    return Use(
        positions=tuple(positions),
        takes_gradient=any(each.requires_grad for inputs, _ in calls for each in inputs),
        gives_gradient=any(each.requires_grad for _, outputs in calls for each in outputs),
        calls=len(calls) // len(list(_called(module))),
    )
