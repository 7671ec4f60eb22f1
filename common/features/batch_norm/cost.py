"""The exchanges of batch normalizations with the statistics of the whole batch (`--batch-norm sync`).

For each channel, torch's ranks sum the mean and then the variance in the forward pass, and their two gradients in the backward
pass. So do our models in TensorFlow. Keras sums the values, their squares and their number at once, and two gradients.

References:
    torch_impl/features/synchronized.py; tf_impl/features/batch_norm.py; `_compute_moments_sync` in
    keras/src/backend/tensorflow/nn.py of Keras 3.15.
"""

from collections.abc import Mapping

from samestep.common.features.batch_norm.statistics import batch_norms, framework_norms
from samestep.common.frameworks import conventions
from samestep.common.ledger import Send
from samestep.common.strategy import Run

_STATED_SUMS = 2
"""The number of sums that a batch normalization of our models takes in each phase."""


def stated_sums(run: Run, phase: str) -> dict[str, Send]:
    """Returns the sums of the batch normalizations that every mirror states.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    return _sums(run, phase, batch_norms(run.workload.model), _STATED_SUMS)


def framework_sums(run: Run, phase: str) -> dict[str, Send]:
    """Returns the sums of the batch normalizations that are layers of the framework itself.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    if not (norms := framework_norms(run.workload.model)):
        return {}
    return _sums(run, phase, norms, conventions(run.framework).norm_sums[phase])


def _sums(run: Run, phase: str, channels: Mapping[str, int], count: int) -> dict[str, Send]:
    if run.batch_norm != "sync" or run.num_devices == 1:
        return {}
    return {
        path: Send(phase, "all_reduce", run.mesh.only_axis, run.num_devices, size * run.item_bytes * count, count)
        for path, size in channels.items()
    }
