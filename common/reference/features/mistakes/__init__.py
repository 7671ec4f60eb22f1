"""Known mistakes in features of a model; each feature has a file, with its `MISTAKES`."""

from samestep.common.reference.mutants import Mutant, mistakes_below

MISTAKES: tuple[Mutant, ...] = mistakes_below(__name__, __path__)
"""The mistakes in all features, in alphabetical order of the features."""
