"""The oracle: the plain step in NumPy float64, every derivative written out by hand.

Replicated: nothing. Split: nothing. Sent: nothing.
Use it to judge the others: it shares no arithmetic with either framework.
"""

from common.config import RunConfig
from common.reference.program import TrainingProgram
from common.workload.table import Workload


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of the one process there is."""
    return TrainingProgram(workload, config)
