"""Records what an observed step sends, in order."""

import collections
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from samestep.common.ledger import Send, in_order


class SendRecorder:
    """Records the sends of a program, in order and from all its threads, but only in an observed step.

    Attributes:
        phase: The phase of the step. A backward pass is detected; every other phase is set.
        whole: The name of the group of all ranks, which is the mesh axis if there is only one.
        counted: The quantities counted in the forward passes of the observed step, by name.
    """

    def __init__(self, whole: str) -> None:
        self.phase = "forward"
        self.whole = whole
        self.counted: collections.Counter[str] = collections.Counter()
        self._sends: list[Send] = []
        self._is_on = False

    def start(self) -> None:
        """Discards everything recorded so far, and starts recording."""
        self._sends, self._is_on, self.phase = [], True, "forward"
        self.counted.clear()

    def add(
        self,
        operation: str,
        tensors: Iterable[torch.Tensor],
        group: str,
        ranks: int,
        to: str = "",
        phase: str = "",
        source: str = "",
    ) -> None:
        """Records a send; does nothing outside an observed step.

        Args:
            operation: The name of the operation in the ledger.
            tensors: The tensors that this process sends.
            group: The mesh axis along which they are sent.
            ranks: The number of ranks or devices along that axis.
            to: The receiver, if the operation is a message.
            phase: The phase, if it is not the current one.
            source: The sender, if it is not this process.
        """
        if self._is_on:
            size = sum(tensor.nbytes for tensor in tensors)
            send = Send(phase or self.phase, operation, group, ranks, size, to=to, source=source, at=time.time())
            self._sends.append(send)

    def count(self, numbers: Mapping[str, int]) -> None:
        """Counts quantities that depend on the data, in the forward passes of an observed step; recomputation does not count.

        Args:
            numbers: The number to add to each quantity, by name.
        """
        if self._is_on and self.phase == "forward":
            self.counted.update(numbers)

    def stop(self) -> tuple[Send, ...]:
        """Stops recording, and returns what was recorded."""
        self._is_on = False
        return in_order(self._sends)

    def entering(self, phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a method with which a phase of the step begins.

        Args:
            phase: The phase that begins.
            method: The method to wrap.
        """

        def entered(*arguments: object, **options: object) -> object:
            self.phase = phase
            return method(*arguments, **options)

        return entered
