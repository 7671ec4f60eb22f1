"""Finds the modules and optimizers of a process, which modules are trained, and which are like them but never updated.

The latter are averages of the weights, teachers and target networks. A script may never train them, but still keep them as its
result. No other check would notice if they follow the weights differently.
"""

from collections.abc import Iterable, Sequence

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import Optimizer

from samestep.common.objects import objects_of
from samestep.torch_impl.recording.keras.layers import is_keras, is_symbolic
from samestep.torch_impl.recording.pieces import has_no_numbers


def find_objects() -> tuple[list[nn.Module], list[Optimizer]]:
    """Returns all modules and optimizers of the process."""
    modules, optimizers = list[nn.Module](), list[Optimizer]()
    for each in objects_of(nn.Module, Optimizer):
        (modules if issubclass(type(each), nn.Module) else optimizers).append(each)
    return modules, optimizers


def is_only_built(module: nn.Module, *given: object) -> bool:
    """Returns whether a call is part of building a model: it computes a weight, as in `spectral_norm`, or is symbolic.

    Args:
        module: The module that is called.
        given: Its arguments.
    """
    return isinstance(module, ParametrizationList) or (is_keras(module) and is_symbolic(given))


def outermost(modules: Sequence[nn.Module], wanted: set[int]) -> tuple[list[nn.Module], list[nn.Module]]:
    """Returns the outermost modules that hold a wanted parameter, the one with the most first, and the outermost others.

    torch does not see that a layer of Keras is in a model. So if several hold equally many, the model is the one with the most
    variables.

    Args:
        modules: All modules.
        wanted: The ids of the wanted parameters.
    """
    contained = {id(child) for module in modules for child in (module.__dict__.get("_modules") or {}).values()}
    counts, sizes = dict[nn.Module, int](), dict[nn.Module, int]()
    for module in modules:
        if id(module) not in contained and module.__dict__.get("_parameters") is not None:
            counts[module] = sum(id(each) in wanted for each in module.parameters())
            sizes[module] = len([*module.parameters()]) if is_keras(module) else 0
    roots = [module for module, count in counts.items() if count]
    idle = [module for module, count in counts.items() if not count and not is_keras(module)]
    return sorted(roots, key=lambda module: (-counts[module], -sizes[module], type(module).__name__)), idle


def followers(idle: Iterable[nn.Module], roots: Sequence[nn.Module]) -> list[nn.Module]:
    """Returns the idle modules whose parameters have the same shapes as a part of the trained modules.

    Args:
        idle: Outermost modules in which nothing is trained.
        roots: Outermost modules that are trained.
    """
    waiting = [(each, shapes) for each in idle if (shapes := _shapes(each))]
    if not waiting:
        return []
    trained = {_shapes(part) for root in roots for part in root.modules()}
    return [each for each, shapes in waiting if shapes in trained]


def _shapes(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    tensors = [*module.parameters()]
    return () if any(map(has_no_numbers, tensors)) else tuple(tuple(each.shape) for each in tensors)
