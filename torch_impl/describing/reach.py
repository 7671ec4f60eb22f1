"""Finds out what a backward pass reaches, and which modules every forward pass calls, when a user model is described.

A parameter that nothing reads has no gradient. A parameter that is read only for some examples, such as an expert's, has a
gradient in some steps and on some ranks. A forward pass can treat examples differently only by reading numbers from tensors, and
torch tags the operators that do so.

References:
    torch.Tag.data_dependent_output and torch.Tag.dynamic_output_shape (torch 2.13).
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from samestep.common.errors import ConfigError
from samestep.common.workload.declared import call_user
from samestep.common.workload.models.description_report import EXAMPLES
from samestep.torch_impl import weights
from samestep.torch_impl.models.followed_modules import following
from samestep.torch_impl.models.inputs import Inputs, as_inputs, tensors
from samestep.torch_impl.models.outputs import main_outputs

_TRIED = 8
"""The number of parts of the data that are tried, each of EXAMPLES examples."""
_LOOKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_OUTSIDE = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)
"""Functions that read numbers from a tensor without an operator."""
_MASKS = (torch.bool, torch.uint8)


@dataclasses.dataclass(frozen=True)
class Reach:
    """What the backward pass of a user model reaches.

    Attributes:
        unused: The parameters that got no gradient, by neutral name.
        branches: Whether the forward pass reads numbers from tensors, so another step may reach other parameters.
        unread: The positions of the tensors that the model returns but its loss does not read.
    """

    unused: tuple[str, ...]
    branches: bool
    unread: tuple[int, ...] = ()

    @property
    def may_skip(self) -> bool:
        """Whether a step may leave a parameter without a gradient."""
        return bool(self.unused) or self.branches


class _Looks(TorchDispatchMode):
    """A mode that finds out whether the shape of a result, or the flow of the Python code, depends on numbers."""

    supports_higher_order_operators = True  # such as a conditional, which has no tags
    found = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Handles every operator that torch dispatches."""
        if _LOOKS & set(getattr(func, "tags", _LOOKS)):
            # Indexing is tagged because of masks; integer indices select the same number of rows for all values.
            self.found |= func is not torch.ops.aten.index.Tensor or any(
                i is not None and i.dtype in _MASKS for i in args[1]
            )
        return func(*args, **(kwargs or {}))


class _LooksOutside(TorchFunctionMode):
    """A mode that finds out whether numbers are taken out of torch."""

    found = False

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Handles every function of torch that is called."""
        self.found |= func in _OUTSIDE
        return func(*args, **(kwargs or {}))


def find_reach(
    module: nn.Module, inputs: Inputs, is_random: bool, source: str, loss: Callable[[object], object] = main_outputs
) -> Reach:
    """Runs some examples forward, as in training, and backward, and returns what they reach.

    Args:
        module: The model, which is not changed.
        inputs: The inputs of some examples.
        is_random: Whether the forward pass draws random numbers outside of any layer, as it may branch on those as well.
        source: Where the model is declared, for messages.
        loss: Computes losses from what the model returns; every loss of ours reads all of the outputs.

    Raises:
        ConfigError: The model fails, or a gradient is sparse.
    """
    inside, outside = _Looks(), _LooksOutside()
    module.train()
    with kept_buffers(module):
        with inside, outside:
            returned = call_user(module, source, "the forward pass in training", inputs)
        leaves = torch.utils._pytree.tree_leaves(returned)
        kept = {n: each for n, each in enumerate(leaves) if isinstance(each, torch.Tensor) and each.requires_grad}
        for each in kept.values():
            each.retain_grad()
        is_loss = _go_backward(loss(returned), source)
    trained = {name: w.parameter for name, w in weights.named_weights(module).items() if w.parameter.requires_grad}
    for name, parameter in trained.items():
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            raise ConfigError(f"--model {source}: {_sparse(module, parameter, name)}")
    unused = tuple(name for name, parameter in trained.items() if parameter.grad is None)
    if is_loss and len(unused) == len(trained):
        raise _is_independent(source)
    unread = tuple(number for number, each in kept.items() if each.grad is None)  # some may be parameters
    module.zero_grad()
    return Reach(unused, inside.found or outside.found or is_random, unread)


def _go_backward(losses: object, source: str) -> bool:
    """Runs the backward pass of a loss; returns whether it is a loss. If it is not, other code refuses it."""
    if not isinstance(losses, torch.Tensor) or not losses.is_floating_point():
        return False
    if not losses.requires_grad:
        raise _is_independent(source)
    call_user(losses.sum().backward, source, "the backward pass")
    return True


def _is_independent(source: str) -> ConfigError:
    return ConfigError(
        f"--model {source}: nothing that the loss reads depends on a parameter that is trained; leave out .detach(), "
        f".item() and torch.no_grad() in the forward pass."
    )


def _sparse(module: nn.Module, parameter: nn.Parameter, name: str) -> str:
    """Returns why a parameter with a sparse gradient is refused, and what to write instead."""
    why = "gets a sparse gradient, which strategies do not exchange"
    for path, each in module.named_modules():
        if isinstance(each, nn.Embedding | nn.EmbeddingBag) and each.weight is parameter and each.sparse:
            return f"the {type(each).__name__} `{path}` {why}; write sparse=False."
    return f"the parameter {name} {why}; look it up with sparse=False."


@contextlib.contextmanager
def kept_buffers(module: nn.Module) -> Iterator[None]:
    """Makes a context that restores the buffers of a module at its end."""
    kept = [buffer.clone() for buffer in module.buffers()]
    yield
    with torch.no_grad():
        for buffer, value in zip(module.buffers(), kept, strict=True):
            buffer.copy_(value)


def always_called(module: nn.Module, paths: Iterable[str], examples: np.ndarray) -> list[str]:
    """Returns the modules that every forward pass calls equally often, each time with inputs of the same shape.

    If a rank calls a module less often than another rank, the other one hangs in a collective. A module that gets only the
    examples routed to it is called with varying shapes, and may get no examples.

    Args:
        module: The model.
        paths: The paths of the modules to check.
        examples: The inputs of the training data.
    """
    members = {path: members_of(module.get_submodule(path), path) for path in paths}
    wanted = [each for several in members.values() for each in several]
    parts = [examples[start : start + EXAMPLES] for start in range(0, _TRIED * EXAMPLES, EXAMPLES)]
    tried = [as_inputs(part.copy()) for part in parts if len(part) == EXAMPLES]
    calls = [found for x in (*tried, *map(_negated, tried[:1])) if (found := _calls(module, wanted, x)) is not None]
    # An empty batch routes no example anywhere; not every model accepts it.
    nothing = _calls(module, wanted, as_inputs(examples[:0].copy()))

    def is_always(path: str) -> bool:
        first = calls[0][path] if calls else []
        is_as_often = nothing is None or len(nothing[path]) == len(first)
        return bool(first) and is_as_often and all(found[path] == first for found in calls)

    return [path for path, several in members.items() if all(map(is_always, several))]


def members_of(module: nn.Module, path: str) -> list[str]:
    """Returns the path of a module or, for a list, which has no forward pass itself, those of its members.

    Args:
        module: The module or list.
        path: The path of the module or list.
    """
    if not isinstance(module, nn.ModuleList):
        return [path]
    return [each for name, member in module.named_children() for each in members_of(member, f"{path}.{name}")]


def _negated(x: Inputs) -> Inputs:
    """Returns different real inputs, on which a model might branch differently; ids stay the same."""

    def turned(each: torch.Tensor) -> torch.Tensor:
        return -each if each.is_floating_point() else each

    return turned(x) if isinstance(x, torch.Tensor) else {name: turned(each) for name, each in x.items()}


def _calls(module: nn.Module, paths: Iterable[str], x: Inputs) -> dict[str, list[list[torch.Size]]] | None:
    """Returns the shapes of the inputs of some modules, for each call in a forward pass; None if the pass fails."""
    found: dict[str, list[list[torch.Size]]] = {path: [] for path in paths}

    def note(path: str, *given: object) -> None:
        found[path].append([each.shape for each in tensors(given)])

    was_training = module.training
    module.eval()
    try:
        modules = [(path, module.get_submodule(path)) for path in found]
        with following(modules, note), kept_buffers(module), torch.no_grad():
            module(x)
    except Exception:  # anything that a user's code may raise
        return None
    finally:
        module.train(was_training)
    return found
