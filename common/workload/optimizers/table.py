"""The optimizers by name. Each is imported on demand, since most commands need at most one."""

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samestep.common.workload.optimizers.spec import OptimizerSpec, Update

OPTIMIZERS = {"sgd": "Sgd", "adamw": "AdamW", "lion": "Lion", "muon": "Muon", "adafactor": "Adafactor"}
"""The name of an optimizer -> its class, in the file of that name."""
DEFAULT = "adamw"
"""The optimizer of a user's model, unless another one is requested."""
USER = "own"
"""The name in `--optimizer` of the optimizer that the user's file builds."""


def optimizer_named(name: str) -> "type[OptimizerSpec]":
    """Returns the class of one of our optimizers."""
    return getattr(_module(name), OPTIMIZERS[name])


def mistakes_of(name: str) -> "Mapping[Update, str]":
    """Returns the wrong updates of one of our optimizers, each with a sentence that describes it."""
    return _module(name).MISTAKES


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{name}")
