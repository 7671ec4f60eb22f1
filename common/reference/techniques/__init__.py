"""Known mistakes in techniques; each technique has a file, with its `MISTAKES`."""

from samestep.common.reference.mutants import Mutant, mistakes_below

MISTAKES: tuple[Mutant, ...] = mistakes_below(__name__, __path__)
"""The mistakes in all techniques, in alphabetical order of the techniques."""
