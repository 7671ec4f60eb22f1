"""The axis `shard`: every device takes different examples and holds a part of parameters, gradients and optimizer state.

Parameters are gathered to compute.

References:
    Rajbhandari et al., arXiv 1910.02054, section 7: two all-gathers and a reduce-scatter, among each replica of the shards.
"""

import math

from samestep.common.axes.axis import AxisHooks, Sizes, Term
from samestep.common.errors import ConfigError
from samestep.common.strategy import Run


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of two all-gathers of all parameters, and of a reduce-scatter of their gradients.

    Args:
        run: What is trained.
        sizes: The sizes in which the term is expressed.
    """
    replicas = math.prod(map(run.mesh.axis, run.mesh.replica_axes))
    return 3 * replicas * (run.mesh.shard - 1) * sizes.params


def refuse(run: Run) -> None:
    """Refuses parameters that cannot be cut into parts, or that a forward pass writes.

    Raises:
        ConfigError: A parameter has no dim to cut along, or a forward pass writes into a parameter, which would be lost with the
            gathered copy.
    """
    model = run.workload.model
    numbers = [name.replace("/", ".") for name, param in model.params().items() if not param.shape]
    if numbers:
        raise ConfigError(
            f"{run.name} cuts each parameter along its first dim, and {numbers[0]} of {run.workload.name} is a single number "
            f"without one; give it the shape [1], or choose a row that keeps parameters whole, such as torch:zero1."
        )
    if written := model.facts.written:
        raise ConfigError(
            f"{run.name} drops a gathered parameter after each forward pass, and the forward pass of {run.workload.name} "
            f"writes into {written[0]}; hold it in a buffer, or choose a row that keeps parameters whole, such as torch:zero1."
        )


HOOKS = AxisHooks(
    textbook=lambda run: Term("3 d c (s - 1) w Ψ", sent), refuse=refuse, divides=lambda model, mesh, name: True
)
