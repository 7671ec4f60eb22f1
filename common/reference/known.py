"""All known mistakes: the mutants, and mistakes from public issue threads, each with a cell in which it matters."""

from samestep.common.reference import silent_bugs, silent_positions, silent_runs, silent_updates
from samestep.common.reference.features.mistakes import MISTAKES as OF_FEATURES
from samestep.common.reference.mutants import MUTANTS, Mutant
from samestep.common.reference.techniques import MISTAKES as OF_TECHNIQUES

SILENT_BUGS: tuple[Mutant, ...] = (
    *silent_bugs.MISTAKES,
    *silent_updates.MISTAKES,
    *silent_positions.MISTAKES,
    *silent_runs.MISTAKES,
    *OF_FEATURES,
    *OF_TECHNIQUES,
)
KNOWN: tuple[Mutant, ...] = (*MUTANTS, *SILENT_BUGS)
"""The mistakes that the diagnosis tries."""
