"""What requests of recomputation are refused."""

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.workload.models.own import OwnSpec


def check_recomputation(run: Run) -> None:
    """Refuses to recompute where there is nothing to, and where computing twice changes what is learned.

    Raises:
        ConfigError: It is so.
    """
    model = run.workload.model
    if not run.techniques.recompute:
        return
    if not isinstance(model, OwnSpec):
        if len(model.segments()) < 3:
            raise ConfigError(
                f"--recompute computes the inner segments of a model again, and {run.workload.name} has none; give it more "
                "layers=, or leave it out."
            )
        return
    if run.framework == "tf" or not model.blocks():
        raise ConfigError(
            f"--recompute computes blocks of a user's torch model again, and {run.workload.name} names none; leave it out."
        )
    if model.described.buffers:
        raise ConfigError(
            f"--recompute would update the buffers of {run.workload.name} ({next(iter(model.described.buffers))}, ...) "
            "twice a step; leave it out."
        )
