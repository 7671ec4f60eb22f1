"""The quantities that several rows measure. Imports no framework."""

from samestep.common.strategy import Measure

OVERLAP_MEASURES = (
    Measure("communication_seconds", "s per step", "how long gradients were in flight"),
    Measure("overlap_seconds", "s per step", "how much of that time overlapped the backward pass"),
)
PIPELINE_MEASURES = (
    Measure("busy_seconds", "s per step", "median time in which this rank computed forward and backward"),
    Measure("idle_seconds", "s per step", "the rest of its step: waiting for others, sending, and overhead"),
)
