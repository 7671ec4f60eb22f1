"""From the optimizer that was asked for to its spec, refused where a strategy would take another step with it."""

from collections.abc import Iterable

from samestep.common.errors import ConfigError
from samestep.common.frameworks import conventions
from samestep.common.request import RunConfig
from samestep.common.strategy import Run
from samestep.common.workload.models.reached import trained
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.optimizers.table import OPTIMIZERS, USER
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer
from samestep.common.workload.workload import Workload

_CUTTING = ("shard", "tensor")
"""The axes along which the parameters themselves are cut."""


def read_optimizer(config: RunConfig, workload: Workload) -> OptimizerSpec:
    """Makes the spec of the optimizer of a request.

    Args:
        config: What was asked for.
        workload: What is trained.

    Raises:
        ConfigError: It is the user's own, and there is none that the framework's strategies can take.
    """
    name = config.optimizer or next(iter(workload.learning_rates))
    if name != USER:
        return OPTIMIZERS[name](config.learning_rate or workload.learning_rate(name))
    found = workload.model.facts.optimizer
    if found is None:
        why = "has no optimizer; add `optimizer={'torch': lambda params: ...}` to its samestep.Model"
    elif refusal := conventions(config.framework).refuses_optimizer:
        why = f"has an optimizer, and {refusal}"
    elif found.refused:
        why = found.refused
    else:
        rate = config.learning_rate or workload.learning_rate(name)
        return UserOptimizer(rate, workload.model.facts.source, found.kept, found.groups)
    raise ConfigError(f"{workload.name} {why}; or choose --optimizer {_listed(OPTIMIZERS)}.")


def check_optimizer(run: Run) -> None:
    """Refuses an optimizer that cannot update some parameter, or only whole ones where they are cut.

    Raises:
        ConfigError: It cannot.
    """
    optimizer = run.optimizer
    for name, param in trained(run.workload.model.params()).items():
        if not optimizer.applies_to(param.role):
            raise ConfigError(
                f"--optimizer {optimizer.name} does not update a {param.role}, as {name} of {run.workload.name} is; choose "
                f"{_listed(OPTIMIZERS)}."
            )
    is_cut = run.strategy.cuts_parameters or any(run.mesh.axis(axis) > 1 for axis in _CUTTING)
    if is_cut and not optimizer.is_elementwise:
        others = _listed(name for name, each in OPTIMIZERS.items() if each.is_elementwise)
        raise ConfigError(
            f"--optimizer {optimizer.name} updates whole matrices, which {run.name} cuts; choose {others}, or a row that "
            f"keeps parameters whole."
        )


def _listed(names: Iterable[str]) -> str:
    """Returns names as a sentence lists choices."""
    *first, last = names
    return f"{', '.join(first)} or {last}"
