"""The optimizers by name."""

from collections.abc import Mapping

from samestep.common.workload.optimizers import adafactor, adamw, lion, muon, sgd
from samestep.common.workload.optimizers.spec import OptimizerSpec, Update
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer

OPTIMIZERS: Mapping[str, type[OptimizerSpec]] = {
    "sgd": sgd.Sgd,
    "adamw": adamw.AdamW,
    "lion": lion.Lion,
    "muon": muon.Muon,
    "adafactor": adafactor.Adafactor,
}
MISTAKES: Mapping[str, Mapping[Update, str]] = {
    "sgd": sgd.MISTAKES,
    "adamw": adamw.MISTAKES,
    "lion": lion.MISTAKES,
    "muon": muon.MISTAKES,
    "adafactor": adafactor.MISTAKES,
}
"""Optimizer -> its wrong updates, each with what it means."""
DEFAULT = "adamw"
"""What trains a user's model, unless another is asked for."""
USER = UserOptimizer.name
"""What `--optimizer` calls the one that the user's file builds."""
