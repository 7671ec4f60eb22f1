"""Finds the blocks of a user model, which FSDP gathers before a call and frees after it.

A module is a block if its parameters are read only inside its own calls. Otherwise it is gathered together with its surroundings:
if a part of it is called from elsewhere, if it passes a parameter to other modules, or if it is called several times without
gradients and recomputed in the backward pass, as reentrant checkpointing does; FSDP2 gets those gradients wrong (torch 2.13).
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from samestep.common.errors import unknown
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user
from samestep.common.workload.models.spec import Segment
from samestep.torch_impl import weights
from samestep.torch_impl.describing.reach import always_called, kept_buffers, members_of
from samestep.torch_impl.models.inputs import Inputs, tensors


def find_blocks(
    model: Model, module: nn.Module, inputs: Inputs, examples: np.ndarray | None, source: str
) -> Iterator[Segment]:
    """Yields the blocks that the file names or, if it names none, the members of the outermost lists of like modules.

    Args:
        model: The declaration.
        module: The built model.
        inputs: The inputs of a few examples.
        examples: Inputs to find modules that the forward pass may skip, which cannot be blocks; None if it skips none.
        source: Where the model is declared, for messages.

    Raises:
        ConfigError: The file names a block that the model does not have, or the model fails.
    """
    paths = model.blocks
    if paths is None:
        paths = _alike(module)
    modules = dict(module.named_modules())
    names = tuple(weights.named_weights(module))
    for path in paths:
        if path not in modules:
            raise unknown("block", path, modules, f"It is given in {source}.")
    if examples is not None:
        paths = always_called(module, paths, examples)
    for path in _closed(module, list(paths), inputs, source) if paths else ():
        prefix = path.replace(".", "/")
        yield Segment(prefix, 0, (), tuple(name for name in names if name.startswith(f"{prefix}/")))


def _alike(module: nn.Module) -> list[str]:
    found: list[str] = []
    for path, each in module.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in found)
        if isinstance(each, nn.ModuleList | nn.Sequential) and len(each) > 1 and not inside and _are_alike(list(each)):
            found += [f"{path}.{name}".lstrip(".") for name, _ in each.named_children()]
    return found


def _are_alike(modules: list[nn.Module]) -> bool:
    """Returns whether modules are alike; one may have further parameters, such as a bias that the first computes for all."""
    shapes = [{(name, tuple(p.shape)) for name, p in each.named_parameters()} for each in modules]
    least = min(shapes, key=len)
    return bool(least) and (
        all(each == least for each in shapes)
        or (len(set(map(type, modules))) == 1 and all(least <= each for each in shapes))
    )


def _closed(module: nn.Module, paths: list[str], inputs: Inputs, source: str) -> list[str]:
    """Returns the modules whose parameters are read only inside their own calls, and that compute gradients when called."""
    calls = _CallsFromElsewhere()
    with contextlib.ExitStack() as hooks:
        for path in paths:
            for called in map(module.get_submodule, members_of(module.get_submodule(path), path)):
                calls.watch(path, called, hooks)
        hooks.enter_context(kept_buffers(module))
        was_training = module.training
        module.train()
        call_user(module, source, "the forward pass in training", inputs)
        module.train(was_training)
    return [path for path in paths if path not in calls.open and calls.without_gradients[path] < 2]


class _CallsFromElsewhere:
    """Watches the calls of blocks in a forward pass.

    Attributes:
        open: The blocks with a part that is called from elsewhere, or with a parameter that leaves them.
        without_gradients: How often each block was called without gradients, although it is trained.
    """

    def __init__(self) -> None:
        """Starts with nothing seen."""
        self.open: set[str] = set()
        self.without_gradients: Counter[str] = Counter()
        self._inside: list[str] = []
        self._owners: dict[nn.Module, set[str]] = {}

    def watch(self, path: str, module: nn.Module, hooks: contextlib.ExitStack) -> None:
        """Watches a block, or a member of a block that is a list, until the hooks are removed."""
        held = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
        is_trained = any(parameter.requires_grad for parameter in module.parameters())

        def enter(*_: object) -> None:
            self._inside.append(path)
            self.without_gradients[path] += is_trained and not torch.is_grad_enabled()

        def leave(_: nn.Module, __: object, outputs: object) -> None:
            self._inside.pop()
            if any(each.untyped_storage().data_ptr() in held for each in tensors(outputs)):
                self.open.add(path)

        for part in module.modules():
            self._owners.setdefault(part, set()).add(path)
            if part is not module and next(part.parameters(recurse=False), None) is not None:
                hooks.callback(part.register_forward_pre_hook(self._note).remove)
        hooks.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
        hooks.callback(module.register_forward_hook(leave).remove)

    def _note(self, part: nn.Module, _: object) -> None:
        if not self._owners[part].intersection(self._inside):
            self.open |= self._owners[part]
