"""Runs a few examples through copies of the user's torch model, for `common/workload/models/probing.py`."""

import contextlib
import copy
import dataclasses
import functools
import random
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.declared import call_user
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.loss_check import part_losses, reduction_of
from samestep.common.workload.models.probing import EXAMPLES, FORWARD_PASS, How, ProbedPass, Rows, SeenLayer, cut
from samestep.torch_impl import weights
from samestep.torch_impl.features.applied import freeze, held_still, norms_of
from samestep.torch_impl.models.followed_modules import following
from samestep.torch_impl.models.inputs import as_inputs, tensors
from samestep.torch_impl.models.outputs import main_outputs
from samestep.torch_impl.models.user_loss import loss_function


class Probe:
    """Runs a few examples through a user's torch model. Every experiment has its own copy, which shares the parameters."""

    def __init__(self, module: nn.Module, model: Model, split: Split, source: str) -> None:
        """Prepares the examples.

        Args:
            module: The model in float64, which is not changed.
            model: The declaration.
            split: The data.
            source: Where the model is declared, for messages.
        """
        self._module, self._model, self._source = module, model, source
        self.losses_only, self.reduction = model.loss == RETURNED, reduction_of(model)
        self._inputs, self._targets = (
            as_inputs(array[:EXAMPLES].copy()) for array in (split.train_inputs, split.train_targets)
        )
        self.initial: Mapping[str, np.ndarray] = _buffers(module)
        norms = {path.replace(".", "/") for path in norms_of(module)}
        self.normalizing: Collection[str] = {name for name in self.initial if name.rpartition("/")[0] in norms}

    def take(self, how: How) -> ProbedPass:
        """Runs the examples through a copy of the model, once or twice from the same state."""
        module = self._copy(how)
        with _watching(module) as drawing:
            outputs, losses = self._pass(module, how)
        found = ProbedPass(outputs, _buffers(module), tuple(drawing), losses)
        if not how.is_twice:
            return found
        _set(module, {**self.initial, **how.buffers})
        return dataclasses.replace(found, again=self._pass(module, how)[0])

    def layers(self, how: How) -> Iterator[SeenLayer]:
        """Yields each layer with the inputs that the model passes to it; it can be called separately with a part of them."""
        module = self._copy(how)
        for path, (inputs, output) in _calls(module, lambda: self._pass(module, how)).items():
            again = functools.partial(_of_rows, module.get_submodule(path), inputs, how.is_still)
            yield SeenLayer(path, (*tensors(inputs), output), again)

    def _losses(self, returned: object, rows: Rows) -> np.ndarray | None:
        function = loss_function(self._model)
        if function is None:
            return None
        targets = cut(self._targets, rows)
        losses = call_user(function, self._source, "the loss", returned, targets)
        if not isinstance(losses, torch.Tensor):
            return None
        return part_losses(self._model, self._source, losses.detach().double().numpy().copy(), targets.numpy())

    def _copy(self, how: How) -> nn.Module:
        module = copy.deepcopy(self._module, {id(each): each for each in self._module.parameters()}).train()
        with DRAWS.held():  # `held_still` leaves it on
            if how.is_still:
                held_still(module)
        if how.is_frozen:
            freeze(module, how.running)
        _set(module, how.buffers)
        return module

    def _pass(self, module: nn.Module, how: How) -> tuple[np.ndarray, np.ndarray | None]:
        torch.manual_seed(how.seed)
        random.seed(how.seed)
        np.random.seed(how.seed)
        what = "the forward pass in training"
        with torch.no_grad(), DRAWS.held(how.is_still):
            returned = call_user(module, self._source, what, cut(self._inputs, how.rows))
            return main_outputs(returned).double().numpy().copy(), self._losses(returned, how.rows)


@contextlib.contextmanager
def _watching(module: nn.Module) -> Iterator[dict[str, None]]:
    """Yields the layers that draw random numbers, i.e. those during which a generator of this process advances."""
    found: dict[str, None] = {}
    inside: list[str] = []
    last: list[object] = [None]

    def look() -> None:
        now = torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[2]  # pyrefly: ignore[bad-index]
        if inside and now != last[0]:
            found[inside[-1] or FORWARD_PASS] = None
        last[0] = now

    def enter(path: str, *_: object) -> None:
        look()
        inside.append(path)

    def leave(*_: object) -> None:
        look()
        inside.pop()

    with following(module.named_modules(), enter, leave):
        yield found


def _calls(module: nn.Module, call: Callable[[], object]) -> dict[str, tuple[object, torch.Tensor]]:
    """Returns the inputs and the first result of the first call of each layer, innermost layers first.

    Args:
        module: The model; its own call is left out.
        call: Calls the model.
    """
    given: dict[str, object] = {}
    found: dict[str, tuple[object, torch.Tensor]] = {}

    def keep(path: str, args: tuple[object, ...], named: dict[str, object]) -> None:
        copied = tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, (args, named))
        given.setdefault(path, copied)

    def finish(path: str, args: object, named: object, outputs: object) -> None:
        output = _first(outputs)
        if path not in found and isinstance(output, torch.Tensor) and output.is_floating_point():
            found[path] = given[path], output.clone()

    with following(((path, each) for path, each in module.named_modules() if path), keep, finish):
        call()
    return found


def _of_rows(layer: nn.Module, inputs: object, is_still: bool, rows: Rows) -> np.ndarray:
    """Returns the output of a layer for some rows of its inputs."""
    args, named = tree_map(lambda each: each[slice(*rows)] if isinstance(each, torch.Tensor) else each, inputs)
    with torch.no_grad(), DRAWS.held(is_still):
        return _first(layer(*args, **named)).numpy()


def _first(outputs: object) -> torch.Tensor:
    return tensors(outputs)[0]


def _buffers(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: buffer.numpy().copy() for name, buffer in weights.named_buffers(module).items()}


def _set(module: nn.Module, buffers: Mapping[str, np.ndarray]) -> None:
    named = weights.named_buffers(module)
    for name, value in buffers.items():
        named[name].copy_(torch.from_numpy(value))
