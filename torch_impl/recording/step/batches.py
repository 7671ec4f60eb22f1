"""Remembers the last batches of DataLoaders; what comes in a batch together with a model's inputs is their target."""

import collections
import weakref
from collections.abc import Sequence

import torch

from samestep.torch_impl.recording.step.examples import memory_of, tensors_in

_LAST = 3
"""The number of remembered batches. Some libraries fetch one ahead, and a validation may come in between."""


class Batches:
    """The last batches, which are not kept alive."""

    def __init__(self) -> None:
        """Starts with no batches."""
        self.last = collections.deque[tuple[set[int], list[weakref.ref[torch.Tensor]]]](maxlen=_LAST)

    def add(self, batch: object) -> int:
        """Remembers a batch that a DataLoader yields; returns the least number of examples in it.

        Args:
            batch: A tensor, or tensors in lists and mappings.
        """
        dense = [each for each in tensors_in([batch]) if each.layout is torch.strided]
        tensors = [each for each in dense if each.ndim and not each.is_complex()]
        self.last.append((_places(tensors), [*map(weakref.ref, tensors)]))
        return min([each.shape[0] for each in tensors], default=0)

    def beside(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the tensors that came in the same batch as the inputs of a call, without the inputs.

        Args:
            inputs: The tensors with which a model is called.
        """
        own = _places(inputs)
        for places, batch in reversed(self.last):
            if not own.isdisjoint(places):
                alive = [tensor for each in batch if (tensor := each()) is not None]
                return [each for each in alive if len(each) == len(inputs[0]) and memory_of(each) not in own]
        return []


def _places(tensors: Sequence[torch.Tensor]) -> set[int]:
    return {memory_of(each) for each in tensors if each.layout is torch.strided}
