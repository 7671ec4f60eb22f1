"""The objects of this process."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any


def objects_of(*classes: type) -> list[Any]:
    """Returns all objects of some classes and of those below them.

    Types are asked, not objects: some objects compute what they are asked for. The oldest generation comes first: else two
    objects of one class were in an order that depends on when garbage was collected between them.
    """
    objects = [each for generation in (2, 1, 0) for each in gc.get_objects(generation)]
    kinds = {kind for kind in {type(each) for each in objects} if issubclass(kind, classes)}
    found = [each for each in objects if type(each) in kinds]
    objects.clear()  # it holds itself, so all objects would live on until garbage is collected
    return found


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collects no garbage while many objects are made that stay: each collection would look through all that there are."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
