"""What the passes of a micro-batch need of the whole batch: set on a process before its passes, and read inside them."""

import contextlib
import threading
from collections.abc import Iterator

import torch


class MicroBatch:
    """The present micro-batch of this process.

    Attributes:
        num_targets: The number of targets that count in the GLOBAL batch; 0 in a process that never sees a batch.
        loss_scale: What the backward pass starts with, and gradients are divided by after it.
    """

    def __init__(self) -> None:
        self.num_targets = 0
        self.loss_scale = 1.0
        self._keys: torch.Tensor | None = None
        self._whole: torch.Tensor | None = None
        self._of_thread = threading.local()

    @property
    def keys(self) -> torch.Tensor | None:
        """The key of each example, which decides what dropout keeps; None in evaluation."""
        return getattr(self._of_thread, "keys", self._keys)

    @contextlib.contextmanager
    def numbered(self, keys: torch.Tensor | None) -> Iterator[None]:
        """Makes the context of the passes of some examples, in every thread.

        Args:
            keys: Of these examples.
        """
        before, self._keys = self._keys, keys
        yield
        self._keys = before

    @contextlib.contextmanager
    def in_parts(self) -> Iterator[None]:
        """Makes a context in which only `part` has keys: of a pipeline, that also runs a stage to learn its shapes."""
        self._whole = self._keys
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

    @contextlib.contextmanager
    def on_thread(self, keys: torch.Tensor | None) -> Iterator[None]:
        """Makes the context of the passes of some examples on the present thread.

        Args:
            keys: Of these examples.
        """
        self._of_thread.keys = keys
        yield
        del self._of_thread.keys


MICRO_BATCH = MicroBatch()
"""Of this process."""
