"""The optimizer that the user's file builds."""

from collections.abc import Iterable

import torch
from torch import nn

from samestep.common.errors import ConfigError
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer

RATIO, ASKED = "ratio_of_rates", "rate_asked_for"
"""The keys that we add to a group: the ratio of its rate to that of the file's first group, and the last rate that was set."""


def build(spec: UserOptimizer, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Builds the optimizer of the user's file.

    Args:
        spec: The spec, which says where the optimizer is declared.
        parameters: The parameters to update.

    Raises:
        ConfigError: The user's function fails, or does not return an optimizer.
    """
    builders = load_model(spec.source, "torch").optimizer
    assert builders is not None
    made = call_user(builders["torch"], spec.source, "the function given as optimizer", list(parameters))
    if not isinstance(made, torch.optim.Optimizer):
        kind = type(made).__name__
        raise ConfigError(
            f"--model {spec.source}: the function given as optimizer returned {kind}, not a torch optimizer."
        )
    for group in made.param_groups:
        group[RATIO] = float(group["lr"]) / spec.file_rate if spec.file_rate else 1.0
        group[ASKED] = spec.file_rate
    return made
