"""What a pass needs to know about the whole batch: held by the model that was built with it, and set before each pass."""

import contextlib
from collections.abc import Iterator

import torch

from samestep.torch_impl.observing.recorder import SendRecorder


class StepContext:
    """The current micro-batch, as a part of its step.

    Attributes:
        divisor: What the losses of the GLOBAL batch are divided by, if that varies; 0 in a process that never sees a batch.
        seed_gradient: The gradient of the loss that the backward pass starts with; a technique may scale it.
        keys: The key of each example, which decides what dropout keeps; None in evaluation.
        routed: The tokens of each expert, and the sums of its probabilities, of each block so far; None where no loss is to come,
            as in evaluation, or while a block is computed again.
        recorder: Records what this process sends in a step that is observed.
    """

    def __init__(self, whole: str = "all") -> None:
        """Starts outside of any pass.

        Args:
            whole: What a group of all ranks is called in the record, see `SendRecorder`.
        """
        self.divisor = 0.0
        self.seed_gradient = 1.0
        self.keys: torch.Tensor | None = None
        self.routed: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        self.recorder = SendRecorder(whole)
        self._whole: torch.Tensor | None = None

    @contextlib.contextmanager
    def numbered(self, keys: torch.Tensor | None) -> Iterator[None]:
        """Makes the context of the passes of some examples.

        Args:
            keys: The keys of these examples.
        """
        before, self.keys = self.keys, keys
        yield
        self.keys = before

    @contextlib.contextmanager
    def in_parts(self) -> Iterator[None]:
        """Makes a context in which only `part` has keys: of a pipeline, that also runs a stage to learn its shapes."""
        self._whole = self.keys
        with self.numbered(None):
            yield

    @contextlib.contextmanager
    def part(self, number: int, count: int) -> Iterator[None]:
        """Makes the context of one of several equal parts of the examples, within `in_parts`.

        Args:
            number: Which part.
            count: How many there are.
        """
        with self.numbered(None if self._whole is None else self._whole.chunk(count)[number]):
            yield
