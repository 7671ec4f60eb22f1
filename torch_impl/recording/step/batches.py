"""The last batches of DataLoaders: whatever comes in one batch with the inputs of a model is their target."""

import collections
import weakref
from collections.abc import Sequence

import torch

from samestep.torch_impl.recording.step.examples import memory_of, tensors_in

_LAST = 3
"""The number of batches that are remembered. Some libraries fetch one ahead; after a validation, the next batch is a new
one."""


class Batches:
    """The last ones, which are not kept alive."""

    def __init__(self) -> None:
        """Has seen none."""
        self.last = collections.deque[tuple[set[int], list[weakref.ref[torch.Tensor]]]](maxlen=_LAST)

    def add(self, batch: object) -> int:
        """Remembers what a DataLoader yields; returns how many examples that is, at least.

        Args:
            batch: A tensor, or several in lists and mappings.
        """
        dense = [each for each in tensors_in([batch]) if each.layout is torch.strided]
        tensors = [each for each in dense if each.ndim and not each.is_complex()]
        self.last.append((_places(tensors), [*map(weakref.ref, tensors)]))
        return min([each.shape[0] for each in tensors], default=0)

    def beside(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns what came in the same batch as the inputs of a call, and is none of them.

        Args:
            inputs: The tensors that a model is called on.
        """
        own = _places(inputs)
        for places, batch in reversed(self.last):
            if not own.isdisjoint(places):
                alive = [tensor for each in batch if (tensor := each()) is not None]
                return [each for each in alive if len(each) == len(inputs[0]) and memory_of(each) not in own]
        return []


def _places(tensors: Sequence[torch.Tensor]) -> set[int]:
    return {memory_of(each) for each in tensors if each.layout is torch.strided}
