"""Makes the spec of the requested optimizer, and refuses it if a strategy would take a different step with it."""

import math
from collections.abc import Iterable

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.strategy import Run
from samestep.common.techniques.used import used
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.optimizers.table import OPTIMIZERS, USER, optimizer_named
from samestep.common.workload.workload import Workload


def read_optimizer(config: RunConfig, workload: Workload) -> OptimizerSpec:
    """Makes the spec of the optimizer of a request.

    Args:
        config: The request.
        workload: What is trained.

    Raises:
        ConfigError: The user's own is requested, but their file has none that the framework's strategies can use.
    """
    name = config.optimizer or next(iter(workload.learning_rates))
    if name != USER:
        made = optimizer_named(name)(config.learning_rate or workload.learning_rate(name))
        for technique in used(config.techniques):
            made = technique.change_optimizer(made, config.techniques)
        return made
    found = workload.model.facts.optimizer
    if found is None:
        why = f"has no optimizer; add `optimizer={{{config.framework!r}: function}}` to its samestep.Model"
    elif found.refused:
        why = found.refused
    else:
        from samestep.common.workload.optimizers.user_optimizer import UserOptimizer  # here: most runs take one of ours

        rate = config.learning_rate or workload.learning_rate(name)
        return UserOptimizer(rate, workload.model.facts.source, found.kept, found.groups, found.learning_rate)  # pyrefly: ignore[bad-return]
    raise ConfigError(f"{workload.name} {why}; or choose --optimizer {_listed(OPTIMIZERS)}.")


def check_optimizer(run: Run) -> None:
    """Refuses an optimizer that takes a different step on parts of parameters, if parameters are cut.

    Raises:
        ConfigError: Parameters are cut, and the optimizer takes a different step.
    """
    optimizer = run.optimizer
    is_sharded = math.prod(map(run.mesh.parts, ("parameters", "features", "stacked"))) > 1
    is_cut = run.strategy.cuts_parameters or is_sharded
    if optimizer.name == USER:
        _check_own(run, is_sharded)
    if is_cut and not optimizer.is_elementwise:
        others = _listed(name for name in OPTIMIZERS if optimizer_named(name).is_elementwise)
        raise ConfigError(
            f"--optimizer {optimizer.name} updates whole matrices, which {run.name} cuts; choose {others}, or a row that "
            f"keeps parameters whole."
        )


def _check_own(run: Run, is_sharded: bool) -> None:
    """Refuses the user's optimizer if experiments showed that it takes a different step on what each device has.

    Args:
        run: What is to be trained.
        is_sharded: Whether parameters are sharded tensors, which have access to their other shards.

    Raises:
        ConfigError: It takes a different step.
    """
    found = run.workload.model.facts.optimizer
    assert found is not None
    if is_sharded:
        _refuse_parts(run, found.shards, "two shards of each parameter")
    elif run.strategy.cuts_parameters and run.num_devices > 1:
        _refuse_parts(run, found.halves, "only a half of each parameter")


def refuse_some(run: Run) -> None:
    """Refuses the user's optimizer if it takes a different step on some of the parameters, which is what each device updates.

    Raises:
        ConfigError: It takes a different step.
    """
    found = run.workload.model.facts.optimizer
    if run.optimizer.name == USER and run.num_devices > 1 and found is not None:
        _refuse_parts(run, found.some, "only some of the parameters")


def _refuse_parts(run: Run, moved: str, given: str) -> None:
    if moved:
        raise ConfigError(
            f"the optimizer of {run.workload.name} takes a different step when it is given {given}, as {run.name} does: in an "
            f"experiment {moved} moved differently; choose a row that gives it all of them, as torch:ddp, or "
            "--optimizer "
            f"{_listed(OPTIMIZERS)}."
        )


def _listed(names: Iterable[str]) -> str:
    """Returns names as a sentence lists choices."""
    *first, last = names
    return f"{', '.join(first)} or {last}"
