"""The axis `shard`: other examples; parameters, gradients and optimizer lie in parts, and parameters are gathered to compute.

References:
    Rajbhandari et al., arXiv 1910.02054, section 7: two all-gathers and a reduce-scatter, among each replica of the shards.
"""

import math

from samestep.common.axes.axis import AxisHooks, Sizes, Term
from samestep.common.strategy import Run


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of two all-gathers of all parameters, and of a reduce-scatter of their gradients.

    Args:
        run: What is trained.
        sizes: What the term counts in.
    """
    replicas = math.prod(map(run.mesh.axis, run.mesh.replica_axes))
    return 3 * replicas * (run.mesh.shard - 1) * sizes.params


HOOKS = AxisHooks(textbook=Term("3 d c (s - 1) w Ψ", sent))
