"""Known mistakes of features of a model, a file a feature, each with its `MISTAKES`."""

import importlib
import pkgutil

from samestep.common.reference.mutants import Mutant

MISTAKES: tuple[Mutant, ...] = tuple(
    mistake
    for name in sorted(each.name for each in pkgutil.iter_modules(__path__))
    for mistake in importlib.import_module(f"{__name__}.{name}").MISTAKES
)
"""Of every feature, in the order of their names."""
