"""What batch normalisations exchange that take the statistics of the whole batch (`--batch-norm sync`).

Of each channel, torch's ranks sum the mean and then the variance in the forward pass, and their two gradients in the backward
pass. So do our models in TensorFlow. Keras sums the values, their squares and their number at once, and two gradients.

References:
    torch_impl/models/synchronized.py; tf_impl/models/batch_norm.py; `_compute_moments_sync` in
    keras/src/backend/tensorflow/nn.py of Keras 3.15.
"""

import math
from collections.abc import Iterable

from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.own import Description, OwnSpec
from samestep.common.workload.models.spec import batch_norms

_SUMS = {"torch": {"forward": 2, "backward": 2}, "tf": {"forward": 3, "backward": 2}}
"""Framework -> how many sums a layer of a user's model takes in each phase."""


def with_statistics(run: Run, sends: Iterable[Send]) -> list[Send]:
    """Adds the sums of batch normalisations to what a strategy sends.

    Args:
        run: What is trained.
        sends: In order.
    """
    sends, forward, backward = list(sends), sums(run, "forward"), sums(run, "backward")
    summed = [*forward.values(), *reversed(backward.values())]
    first = next((index for index, send in enumerate(sends) if send.phase != "forward"), len(sends))
    return [*sends[:first], *summed, *sends[first:]]


def sums(run: Run, phase: str) -> dict[str, Send]:
    """The sums of each batch normalisation in a phase, by its path.

    Args:
        run: What is trained.
        phase: Of the step.
    """
    if run.batch_norm != "sync" or run.num_devices == 1:
        return {}
    model, count = run.workload.model, 2
    if isinstance(model, OwnSpec):
        count = _SUMS[run.framework][phase]
        channels = {layer: _channels(model.described, layer) for layer in model.described.batch_norms}
    else:
        channels = batch_norms(model)
    return {
        path: Send(phase, "all_reduce", run.mesh.only_axis, run.num_devices, size * run.item_bytes * count, count)
        for path, size in channels.items()
    }


def _channels(described: Description, layer: str) -> int:
    """The channels of a layer: what it keeps or trains has one number of each."""
    prefix = f"{layer.replace('.', '/')}/"
    kept = [shape for name, shape in described.buffers.items() if name.startswith(prefix) and shape]
    trained = [param.shape for name, param in described.params.items() if name.startswith(prefix)]
    return math.prod(next(iter([*kept, *trained]), (0,)))
