"""The modules and optimizers of a process: which modules are trained, and which are like them but updated by no optimizer.

The latter are averages of the weights, teachers and target networks. A script may never train on them, and yet they may be what
it keeps; nobody else would see that they follow the weights in another way.
"""

import gc
from collections.abc import Iterable, Sequence

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import Optimizer

from samestep.torch_impl.recording.keras.layers import is_keras
from samestep.torch_impl.recording.pieces import has_no_numbers


def find_objects() -> tuple[list[nn.Module], list[Optimizer]]:
    """All modules and optimizers of the process. Types are asked, not objects: some objects compute what they are asked for.

    The oldest generation comes first: else two networks of one class were named in an order that depends on when garbage was
    collected between them.
    """
    objects = [each for generation in (2, 1, 0) for each in gc.get_objects(generation)]
    kinds = {type(each) for each in objects}
    of_modules = {kind for kind in kinds if issubclass(kind, nn.Module)}
    of_optimizers = {kind for kind in kinds if issubclass(kind, Optimizer)}
    wanted = of_modules | of_optimizers
    found = [each for each in objects if type(each) in wanted]
    return [each for each in found if type(each) in of_modules], [each for each in found if type(each) in of_optimizers]


def is_computed_weight(module: nn.Module) -> bool:
    """Returns whether a module computes a weight, as that of `spectral_norm`: it is called while the model is still built."""
    return isinstance(module, ParametrizationList)


def outermost(modules: Sequence[nn.Module], wanted: set[int]) -> tuple[list[nn.Module], list[nn.Module]]:
    """Returns the modules that no other contains and that hold a wanted parameter, the one with the most first; and all others.

    Args:
        modules: All modules.
        wanted: The ids of parameters.
    """
    contained = {id(child) for module in modules for child in (module.__dict__.get("_modules") or {}).values()}
    counts = {}
    for module in modules:
        if id(module) not in contained and module.__dict__.get("_parameters") is not None:
            counts[module] = sum(id(each) in wanted for each in module.parameters())
    roots = [module for module, count in counts.items() if count]
    idle = [module for module, count in counts.items() if not count and not is_keras(module)]
    return sorted(roots, key=lambda module: (-counts[module], type(module).__name__)), idle


def followers(idle: Iterable[nn.Module], roots: Sequence[nn.Module]) -> list[nn.Module]:
    """Returns those modules that have the shapes of a part of what is trained.

    Args:
        idle: Outermost modules of which nothing is trained.
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
