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
"""The mean cosine between moves and gradients, from projections, below which the moves are steps against the gradients."""


class FirstWeights:
    """The weights before the first pass, because that may change buffers, and a script may write weights early."""

    def __init__(self, recorder: Recorder, called: Sequence[nn.Module], leaves: Sequence[TrackedTensor]) -> None:
        """Prepares the weights according to the options, and looks at them.

        Args:
            recorder: The recorder, which has the options and the number of the step.
            called: The outermost modules that are called.
            leaves: See `find_tensors`.
        """
        start_with(recorder, called, leaves)
        held = self._held = find_tensors(called, leaves)
        self.tensors, statistics = [each.tensor for each in held], summaries_of(held)
        self.stats, self._statistics = looked_at(held, statistics).resolve() if held else None, statistics
        self.written = WrittenWeights(recorder, lambda: looked_at(held, statistics), held)
        self._gradients: Pending | None = None
        self._has_moved = False

    def see_gradients(self) -> None:
        """Looks at the gradients of a pass, which a script may use itself even if it has an optimizer."""
        if not self._has_moved and not is_of_many():
            with torch.no_grad():
                self._gradients = self._statistics([each.gradient() for each in self._held])

    def used_by_hand(self) -> Pending | None:
        """Returns the gradients if the script has moved its weights against them, i.e. takes steps without its optimizer.

        Other moves before the optimizer steps, as in sharpness-aware minimization, are not steps.
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
    """Returns the statistics of the current values of tensors.

    Args:
        held: The tensors.
        statistics: Computes the statistics of these tensors.
    """
    with torch.no_grad():
        return statistics([each.value() for each in held])


def summaries_of(held: Sequence[TrackedTensor]) -> Statistics:
    """Returns an object that computes the statistics of tensors."""
    return Statistics([each.tensor.piece for each in held], is_float64(held))


def is_float64(held: Sequence[TrackedTensor]) -> bool:
    """Returns whether there are tensors and all are float64."""
    return bool(held) and all(each.tensor.dtype == "float64" for each in held)
