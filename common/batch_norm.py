"""Batch normalisation over the whole batch: for which runs it cannot be had."""

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run


def refuse_sync(run: Run, why: str) -> None:
    """Refuses statistics of the whole batch, for a strategy of which no replica ever sees them.

    Args:
        run: What is to be trained.
        why: A clause.

    Raises:
        ConfigError: They are asked for.
    """
    if run.batch_norm == "sync":
        raise ConfigError(
            f"{run.name} cannot take --batch-norm sync: {why}; choose torch:ddp, tf:mirrored, or another."
        )
