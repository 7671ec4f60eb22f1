"""The weights before the first pass, and how the tensors of a script are looked at."""

from collections.abc import Sequence

import torch
from torch import nn

from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.held import Held
from samestep.torch_impl.recording.statistics import Pending, Statistics
from samestep.torch_impl.recording.step.written import WrittenWeights
from samestep.torch_impl.recording.tensors import find_tensors


class FirstWeights:
    """The weights before the first pass, which may move buffers, or weights where a script writes them early."""

    def __init__(self, recorder: Recorder, called: Sequence[nn.Module], leaves: Sequence[Held]) -> None:
        """Looks at what is there.

        Args:
            recorder: Knows the number of the step.
            called: The outermost module that is called.
            leaves: As for `find_tensors`.
        """
        held = find_tensors(called, leaves)
        self.tensors, statistics = [each.tensor for each in held], statistics_of(held)
        self.stats = looked_at(held, statistics).resolve() if held else None
        self.written = WrittenWeights(recorder, lambda: looked_at(held, statistics), held)


def looked_at(held: Sequence[Held], statistics: Statistics) -> Pending:
    """Looks at what tensors hold now.

    Args:
        held: The tensors.
        statistics: Computes what a record keeps of them.
    """
    with torch.no_grad():
        return statistics([each.value() for each in held])


def statistics_of(held: Sequence[Held]) -> Statistics:
    """Returns what computes the statistics of tensors."""
    return Statistics([each.tensor.piece for each in held], is_float64(held))


def is_float64(held: Sequence[Held]) -> bool:
    """Returns whether all tensors are, and there are any."""
    return bool(held) and all(each.tensor.dtype == "float64" for each in held)
