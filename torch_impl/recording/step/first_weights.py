"""The weights before the first pass, and how the tensors of a script are looked at."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.places import is_of_many
from samestep.torch_impl.recording.start import start_with
from samestep.torch_impl.recording.statistics import Pending, Statistics
from samestep.torch_impl.recording.step.written import WrittenWeights
from samestep.torch_impl.recording.tensors import find_tensors
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor

_AGAINST = -0.5
"""The mean cosine of moves and gradients, as a few projections of each tensor have it, below which moves follow the gradients."""


class FirstWeights:
    """The weights before the first pass, which may move buffers, or weights where a script writes them early."""

    def __init__(self, recorder: Recorder, called: Sequence[nn.Module], leaves: Sequence[TrackedTensor]) -> None:
        """Prepares them as the options say, and looks at what is there.

        Args:
            recorder: Has the options, and knows the number of the step.
            called: The outermost module that is called.
            leaves: As for `find_tensors`.
        """
        start_with(recorder, called, leaves)
        held = self._held = find_tensors(called, leaves)
        self.tensors, statistics = [each.tensor for each in held], summaries_of(held)
        self.stats, self._statistics = looked_at(held, statistics).resolve() if held else None, statistics
        self.written = WrittenWeights(recorder, lambda: looked_at(held, statistics), held)
        self._gradients: Pending | None = None
        self._has_moved = False

    def see_gradients(self) -> None:
        """Looks at the gradients of a pass, which a script may use itself though it has an optimizer."""
        if not self._has_moved and not is_of_many():
            with torch.no_grad():
                self._gradients = self._statistics([each.gradient() for each in self._held])

    def used_by_hand(self) -> Pending | None:
        """Returns the gradients if the script has moved its weights against them, and so takes steps without its optimizer.

        What moves them otherwise before the optimizer steps, as sharpness-aware minimization does, is no step.
        """
        given = self._gradients
        if given is None or self.stats is None or not self.written.is_moved():
            return None
        self._gradients, self._has_moved = None, True
        moves = looked_at(self._held, self._statistics).resolve()["projections"] - self.stats["projections"]
        slopes = given.resolve()["projections"]
        norms = np.linalg.norm(moves, axis=1) * np.linalg.norm(slopes, axis=1)
        cosines = (moves * slopes).sum(1)[norms > 0] / norms[norms > 0]
        return given if len(cosines) and cosines.mean() < _AGAINST else None


def looked_at(held: Sequence[TrackedTensor], statistics: Statistics) -> Pending:
    """Looks at what tensors hold now.

    Args:
        held: The tensors.
        statistics: Computes what a record keeps of them.
    """
    with torch.no_grad():
        return statistics([each.value() for each in held])


def summaries_of(held: Sequence[TrackedTensor]) -> Statistics:
    """Returns what computes the statistics of tensors."""
    return Statistics([each.tensor.piece for each in held], is_float64(held))


def is_float64(held: Sequence[TrackedTensor]) -> bool:
    """Returns whether all tensors are, and there are any."""
    return bool(held) and all(each.tensor.dtype == "float64" for each in held)
