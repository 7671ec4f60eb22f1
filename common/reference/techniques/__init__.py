"""Known mistakes of techniques, a file a technique, each with its `MISTAKES`."""

from samestep.common.reference.mutants import Mutant, mistakes_below

MISTAKES: tuple[Mutant, ...] = mistakes_below(__name__, __path__)
"""The mistakes of every technique, in the order of their names."""
