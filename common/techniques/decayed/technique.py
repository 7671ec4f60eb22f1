"""Weight decay of matrices only, as a technique; the optimizer carries it out."""

import dataclasses

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.decayed.flag import DecayFlags
from samestep.common.techniques.technique import Technique
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.optimizers.table import OPTIMIZERS, USER, optimizer_named


def spare_vectors(optimizer: OptimizerSpec, techniques: Techniques) -> OptimizerSpec:
    """Returns an optimizer that does not decay vectors; one without weight decay is returned unchanged, and refused later.

    Args:
        optimizer: One of our optimizers.
        techniques: The requested techniques.
    """
    return dataclasses.replace(optimizer, spares_vectors=True) if _decays(type(optimizer)) else optimizer


def _decays(kind: type[OptimizerSpec]) -> bool:
    return "weight_decay" in {field.name for field in dataclasses.fields(kind)}


def refuse(run: Run) -> None:
    """Refuses an optimizer without weight decay, and the user's, which has its own groups of parameters."""
    if run.optimizer.spares_vectors:
        return
    name, decaying = run.optimizer.name, ", ".join(name for name in OPTIMIZERS if _decays(optimizer_named(name)))
    why = "groups its parameters itself" if name == USER else "has no weight decay"
    raise ConfigError(
        f"--decayed {run.techniques.decayed}: --optimizer {name} {why}; choose one of {decaying}, or leave out --decayed."
    )


DECAYED = Technique(flags=DecayFlags, refuse=refuse, change_optimizer=spare_vectors)
