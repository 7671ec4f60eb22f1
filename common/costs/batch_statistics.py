"""What batch normalisations exchange that take the statistics of the whole batch (`--batch-norm sync`).

Of each channel, torch's ranks sum the mean and then the variance in the forward pass, and their two gradients in the backward
pass. So do our models in TensorFlow. Keras sums the values, their squares and their number at once, and two gradients.

References:
    torch_impl/models/synchronized.py; tf_impl/models/batch_norm.py; `_compute_moments_sync` in
    keras/src/backend/tensorflow/nn.py of Keras 3.15.
"""

from collections.abc import Callable, Iterable, Mapping

from samestep.common.frameworks import conventions
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import batch_norms

_STATED_SUMS = 2
"""How many sums a batch normalisation takes in each phase that every mirror states."""
Sums = Callable[[Run, str], dict[str, Send]]


def sums(run: Run, phase: str) -> dict[str, Send]:
    """Returns the sums of each batch normalisation in a phase, by its path.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    return stated_sums(run, phase) | framework_sums(run, phase)


def stated_sums(run: Run, phase: str) -> dict[str, Send]:
    """Returns the sums of the batch normalisations that every mirror states.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    return _sums(run, phase, batch_norms(run.workload.model), _STATED_SUMS)


def framework_sums(run: Run, phase: str) -> dict[str, Send]:
    """Returns the sums of the batch normalisations that are layers of the framework itself.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    if not (norms := run.workload.model.facts.framework_norms):
        return {}
    return _sums(run, phase, norms, conventions(run.framework).norm_sums[phase])


def _sums(run: Run, phase: str, channels: Mapping[str, int], count: int) -> dict[str, Send]:
    if run.batch_norm != "sync" or run.num_devices == 1:
        return {}
    return {
        path: Send(phase, "all_reduce", run.mesh.only_axis, run.num_devices, size * run.item_bytes * count, count)
        for path, size in channels.items()
    }


def with_statistics(run: Run, sends: Iterable[Send], sums: Sums = sums) -> list[Send]:
    """Adds the sums of batch normalisations to what a strategy sends.

    Args:
        run: What is trained.
        sends: The sends, in order.
        sums: Which of the sums.
    """
    sends, forward, backward = list(sends), sums(run, "forward"), sums(run, "backward")
    summed = [*forward.values(), *reversed(backward.values())]
    first = next((index for index, send in enumerate(sends) if send.phase != "forward"), len(sends))
    return [*sends[:first], *summed, *sends[first:]]
