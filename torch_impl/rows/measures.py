"""The quantities that only some rows measure. Imports no framework."""

from samestep.common.strategy import Measure
from samestep.common.workload.routing import AWAY, TAKEN

OVERLAP = (
    Measure("communication_seconds", "s per step", "how long gradients were in flight"),
    Measure("overlap_seconds", "s per step", "how much of that time overlapped the backward pass"),
)
PIPELINE = (
    Measure("busy_seconds", "s per step", "median time in which this rank computed forward and backward"),
    Measure("idle_seconds", "s per step", "the rest of its step: waiting for others, sending, and overhead"),
)
MASTER = (Measure("master_share", "share of the step", "how long the master works while its replicas wait"),)
WAITING = (Measure("idle_share", "share of the step", "how long this rank waited for tensors of other ranks"),)
EXPERTS = (
    Measure(TAKEN, "tokens a step", "tokens that the experts of a rank took in the observed step, over all blocks"),
    Measure(
        AWAY, "tokens a step", "tokens of a rank that went to experts of other ranks, counted once for each expert"
    ),
)
SERVER = (Measure("staleness", "updates", "mean age of the parameters to which gradients were applied"),)
