"""Figures that no machine can have: a busy machine can measure anything, and stored figures affect all later advice."""

import math
from collections.abc import Iterator

from samestep.common.seconds.core_time import Cores
from samestep.experiments.printing.text import short

LEAST_STEP_SECONDS = 1e-5
"""The least overhead of any strategy, besides arithmetic and bytes: Python alone needs more for a step without layers."""
LEAST_LAYER_SECONDS = 1e-7
"""The least overhead of a layer in a micro-batch: one call into torch takes more."""
LEAST_LATENCY_SECONDS = 1e-7
"""The least time of a message between two processes: one system call takes as long."""
MOST_FLOPS_PER_SECOND = 1e14
"""Of one core."""
LEAST_ELEMENT_SECONDS = 1e-12
"""The least time of an elementwise operation: a core would do a thousand in each cycle of its clock."""
MOST_SECONDS = 60.0
"""The longest time of anything that is measured here."""


def odd_figure(cores: Cores, memory_bytes_per_second: float) -> str:
    """Returns the first figure that no machine can have, with what it is and the limit; "" if all are possible.

    Args:
        cores: The measurements of the cores.
        memory_bytes_per_second: The rate of the memory; no message between two processes is faster.
    """
    for what, value, unit, least, most in _figures(cores, memory_bytes_per_second):
        if not (math.isfinite(value) and least <= value <= most):
            limit = f"at least {short(least)}" if not value >= least else f"at most {short(most)}"
            return f"{what} came out as {value:.3g} {unit}, where {limit} is possible"
    return ""


def _figures(cores: Cores, memory: float) -> Iterator[tuple[str, float, str, float, float]]:
    """Yields what it is, its value and unit, and its limits."""
    tiny = 1.0  # of any rate
    yield "memory", memory, "bytes/s", tiny, math.inf
    for size, rate in cores.matmul.items():
        yield f"a matrix product of {size}", rate, "FLOP/s", tiny, MOST_FLOPS_PER_SECOND
    yield "an elementwise operation", cores.element_seconds, "s", LEAST_ELEMENT_SECONDS, MOST_SECONDS
    for name, seconds in cores.latency_seconds.items():
        yield f"a small {name}", seconds, "s", LEAST_LATENCY_SECONDS, MOST_SECONDS
    for name, rate in cores.exchange_bytes_per_second.items():
        yield f"a large {name}", rate, "bytes/s", tiny, memory
    for name, (step, layer) in cores.overhead_seconds.items():
        besides = f"of {name} takes besides arithmetic and messages"
        yield f"what a step {besides}", step, "s", LEAST_STEP_SECONDS, MOST_SECONDS
        yield f"what a layer and micro-batch {besides}", layer, "s", LEAST_LAYER_SECONDS, MOST_SECONDS
