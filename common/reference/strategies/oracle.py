"""The oracle: the plain step in NumPy float64, every derivative written out by hand.

Replicated: nothing. Split: nothing. Sent: nothing.
Use it to judge the others: it shares no arithmetic with either framework.
"""

from samestep.common.reference.program import TrainingProgram
from samestep.common.strategy import Run


def build(run: Run) -> TrainingProgram:
    """Builds the program of the only process."""
    return TrainingProgram(run)
