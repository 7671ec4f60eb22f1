"""Lets a script delete modules: neither the modules that it called nor what belongs only to them is kept alive."""

import weakref

from torch import nn

from samestep.torch_impl.recording.keras.layers import is_keras
from samestep.torch_impl.recording.objects import find_objects
from samestep.torch_impl.recording.tensors import class_of, parameters_of


class CalledModules(dict[int, weakref.ref[nn.Module]]):
    """The outermost modules that were called in training mode, by id, without keeping them alive."""

    num_deleted = 0
    has_deleted = False
    """Whether modules were deleted since this was last reset."""
    _has_new = False

    def add(self, module: nn.Module) -> None:
        """Adds a module that is called for the first time."""
        key = id(module)
        self[key], self._has_new = weakref.ref(module, lambda _: self._end(key)), True

    def _end(self, key: int) -> None:
        self.num_deleted, self.has_deleted = self.num_deleted + 1, True
        self[-self.num_deleted] = self.pop(key)  # another module may get its id, but it stays known that one was called

    def alive(self) -> list[nn.Module]:
        """Returns the modules that the script has not deleted."""
        return [module for each in [*self.values()] if (module := each()) is not None]

    def new(self) -> frozenset[int]:
        """Returns the ids of all trained parameters if modules were added since the last call; otherwise none."""
        has_new, self._has_new = self._has_new, False
        modules = self.alive() if has_new else []
        return frozenset(id(each) for module in modules for each in module.parameters() if each.requires_grad)


class Owned:
    """The ids of the tensors of a module that was called, without keeping it alive."""

    def __init__(self, module: nn.Module) -> None:
        """Stores the ids, which stay valid as long as the tensors are alive."""
        self._made, self.kind = weakref.ref(module), class_of(module)
        self.ids = {*map(id, [] if is_keras(module) else [*module.parameters(), *module.buffers()])}

    @property
    def is_deleted(self) -> bool:
        """Whether the script has deleted the module."""
        return self._made() is None


def ids_in_use() -> set[int]:
    """Returns the ids of all tensors that any module or optimizer holds."""
    modules, optimizers = find_objects()
    found = {id(each) for optimizer in optimizers for each in parameters_of(optimizer)}
    for module in modules:
        for kind in ("_parameters", "_buffers"):
            found |= {id(each) for each in (module.__dict__.get(kind) or {}).values()}
    return found
