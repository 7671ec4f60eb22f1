"""Known mistakes of features of a model, a file a feature, each with its `MISTAKES`."""

from samestep.common.reference.mutants import Mutant, mistakes_below

MISTAKES: tuple[Mutant, ...] = mistakes_below(__name__, __path__)
"""The mistakes of every feature, in the order of their names."""
