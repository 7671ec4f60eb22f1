"""How a process imports its framework: a fork server before it forks, a worker that something else started by itself."""

import gc
import importlib
from collections.abc import Iterable

from samestep.common.catalog import framework_info


def import_framework(framework: str) -> None:
    """Imports what the catalogue lists, unless it is there already."""
    import_modules(framework_info(framework).preload)


def import_modules(names: Iterable[str]) -> None:
    """Imports modules, unless they are there already.

    What an import makes stays. Searching it for garbage meanwhile takes a third of the time; frozen, it stays shared
    between a fork server and its workers.
    """
    gc.disable()
    for name in names:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
