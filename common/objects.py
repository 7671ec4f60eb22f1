"""Finds the objects of this process."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any


def objects_of(*classes: type) -> list[Any]:
    """Returns all objects of some classes and their subclasses.

    It looks at types and not at attributes of objects, since some objects compute their attributes. The oldest generation comes
    first; otherwise the order of two objects would depend on when garbage was collected between them.
    """
    objects = [each for generation in (2, 1, 0) for each in gc.get_objects(generation)]
    kinds = {kind for kind in {type(each) for each in objects} if issubclass(kind, classes)}
    found = [each for each in objects if type(each) in kinds]
    objects.clear()  # it holds itself, so all objects would live on until garbage is collected
    return found


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Pauses garbage collection while many lasting objects are made, since each collection would search all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
