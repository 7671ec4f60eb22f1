"""What a pass needs to know about the whole batch. The model is built with it, and it is set before each pass."""

import contextlib
from collections.abc import Iterator

import torch

from samestep.torch_impl.observing.recorder import SendRecorder


class StepContext:
    """What the passes of the current micro-batch need to know about the whole batch.

    Attributes:
        divisor: The number by which the losses of the GLOBAL batch are divided, if it varies; 0 in a process without a batch.
        seed_gradient: The gradient of the loss with which the backward pass starts; a technique may scale it.
        keys: The key of each example, which determines what dropout keeps; None in evaluation.
        routed: For each block so far, the number of tokens and the summed probability of each expert; None if no loss
            follows, as in evaluation, or while a block is recomputed.
        recorder: Records what this process sends in the observed step.
    """

    def __init__(self, whole: str = "all") -> None:
        """Starts outside of any pass.

        Args:
            whole: The name of the group of all ranks in the record; see `SendRecorder`.
        """
        self.divisor = 0.0
        self.seed_gradient = 1.0
        self.keys: torch.Tensor | None = None
        self.routed: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        self.recorder = SendRecorder(whole)
        self._whole: torch.Tensor | None = None

    @contextlib.contextmanager
    def numbered(self, keys: torch.Tensor | None) -> Iterator[None]:
        """Makes a context for the passes of some examples.

        Args:
            keys: The keys of the examples.
        """
        before, self.keys = self.keys, keys
        yield
        self.keys = before

    @contextlib.contextmanager
    def in_parts(self) -> Iterator[None]:
        """Makes a context in which keys are set only within `part`; a pipeline also runs stages just to find their shapes."""
        self._whole = self.keys
        with self.numbered(None):
            yield

    @contextlib.contextmanager
    def part(self, number: int, count: int) -> Iterator[None]:
        """Makes a context for one of several equal parts of the examples, to be used within `in_parts`.

        Args:
            number: The number of the part, from 0.
            count: The number of parts.
        """
        with self.numbered(None if self._whole is None else self._whole.chunk(count)[number]):
            yield
