"""Which models have examples that can be cut by positions, and into how many parts."""

from samestep.common.errors import ConfigError
from samestep.common.workload.workload import Workload


def check_positions(workload: Workload, count: int) -> None:
    """Refuses models without positions, and unequal parts of a sequence or of the heads.

    Args:
        workload: What is trained.
        count: The size of the axis `context`.

    Raises:
        ConfigError: The model is not our transformer, or a part is unequal.
    """
    params, model = workload.model.params().values(), workload.model
    if count == 1:
        return
    if model.facts.source or not any(param.shares_input for param in params):  # attention does
        raise ConfigError(
            f"a context axis cuts the sequences of our transformer, as in prose-gpt; {workload.name} is another model: choose "
            "another strategy."
        )
    (context,), heads = model.inputs().shape, max(param.groups for param in params)
    if context % count:
        raise ConfigError(f"a sequence of {context} does not divide among a context axis of {count}; give +context=.")
    if heads % count:
        raise ConfigError(
            f"{heads} heads do not divide among a context axis of {count}; use one that divides {heads}, or another number of "
            "+heads=."
        )
