"""A separate learning rate for vectors, as a technique; the optimizer carries it out."""

import dataclasses

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.technique import Technique
from samestep.common.techniques.vector_rate.flag import VectorRateFlags
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.optimizers.table import OPTIMIZERS, USER


def change_rate(optimizer: OptimizerSpec, techniques: Techniques) -> OptimizerSpec:
    """Returns an optimizer with the requested rate for vectors.

    Args:
        optimizer: One of our optimizers.
        techniques: The requested techniques.
    """
    return dataclasses.replace(optimizer, vector_rate=techniques.vector_rate)


def refuse(run: Run) -> None:
    """Refuses the user's optimizer, which has its own groups of parameters."""
    if run.optimizer.name == USER:
        raise ConfigError(
            f"--vector-rate {run.techniques.vector_rate:g}: --optimizer {USER} groups its parameters itself; choose one of "
            f"{', '.join(OPTIMIZERS)}, or leave out --vector-rate."
        )


VECTOR_RATE = Technique(flags=VectorRateFlags, refuse=refuse, change_optimizer=change_rate)
