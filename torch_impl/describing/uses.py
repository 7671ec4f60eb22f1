"""Records how a forward pass uses the modules of a user model: how often, and between which modules gradients flow."""

from collections.abc import Iterable

import torch
from torch import nn

from samestep.common.workload.models.description_report import EXAMPLES
from samestep.common.workload.models.findings import Use
from samestep.torch_impl.models.followed_modules import following
from samestep.torch_impl.models.inputs import Inputs, tensors

_Seen = tuple[list[torch.Tensor], list[torch.Tensor]]
"""The inputs and the outputs of a call."""


def describe_uses(model: nn.Module, inputs: Inputs, paths: Iterable[str]) -> dict[str, Use]:
    """Returns how a step uses some modules, by neutral path; modules that the forward pass does not call are left out.

    Args:
        model: The model, in evaluation.
        inputs: `EXAMPLES` examples.
        paths: The neutral paths of the modules.
    """
    modules = {path: model.get_submodule(path.replace("/", ".")) for path in paths}
    calls: dict[str, list[_Seen]] = {path: [] for path in modules}

    def keep(path: str, *given: object) -> None:
        *arguments, outputs = given
        calls[path].append((tensors(arguments), tensors(outputs)))

    called = [(path, each) for path, module in modules.items() for each in _called(module)]
    with torch.enable_grad(), following(called, leave=keep):
        model(inputs)
    return {path: _use(modules[path], seen) for path, seen in calls.items() if seen}


def _called(module: nn.Module) -> Iterable[nn.Module]:
    """Returns the modules to watch for a module: the members of a list, which is never called itself."""
    return module if isinstance(module, nn.ModuleList) else [module]


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
