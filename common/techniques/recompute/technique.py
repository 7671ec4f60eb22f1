"""Recomputation as a technique."""

from collections.abc import Sequence

from samestep.common.errors import ConfigError
from samestep.common.features.used import running_buffers
from samestep.common.strategy import Run
from samestep.common.techniques.recompute.flag import RecomputeFlags
from samestep.common.techniques.technique import Technique
from samestep.common.workload.models.spec import Segment


def check_recomputation(run: Run) -> None:
    """Refuses recomputation if there is nothing to recompute, or if computing twice changes the step.

    Raises:
        ConfigError: The model has nothing to recompute, or its step would change.
    """
    model = run.workload.model
    if (running := running_buffers(model)) is not None:
        raise ConfigError(
            f"--recompute would update the {running.in_words} of {running.asked_by} twice a step; leave it out."
        )
    if model.facts.is_built_here:
        if len(model.segments()) < 3:
            raise ConfigError(
                f"--recompute computes the inner segments of a model again, and {run.workload.name} has none; give it more "
                "layers=, or leave it out."
            )
        return
    if not model.facts.blocks:  # only torch's describer finds any
        raise ConfigError(
            f"--recompute computes blocks of a user's torch model again, and {run.workload.name} names none; leave it out."
        )
    if buffers := model.facts.buffers:
        raise ConfigError(
            f"--recompute would update the buffers of {run.workload.name} ({next(iter(buffers))}, ...) "
            "twice a step; leave it out."
        )


def inner_segments(run: Run) -> Sequence[Segment]:
    """Returns the segments that are recomputed: those between the first and the last, or a user's blocks."""
    return run.workload.model.segments()[1:-1] or run.workload.model.facts.blocks


RECOMPUTE = Technique(
    flags=RecomputeFlags,
    refuse=check_recomputation,
    computed_twice=inner_segments,
    in_textbooks=("state", "idle share"),  # layers that are cut or sharded may be exchanged again
)
