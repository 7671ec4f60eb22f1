"""The record of what an observed step sends, in order."""

import collections
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from samestep.common.ledger import Send, in_order


class SendRecorder:
    """The sends of a program, in order, from all its threads; sends outside of an observed step are not recorded.

    Attributes:
        phase: The phase of the step. A backward pass is detected; every other phase is set.
        whole: The name of the group of all ranks: the mesh axis along which they lie, if there is only one.
        counted: What was counted in the forward passes of the observed step, by name.
    """

    def __init__(self, whole: str) -> None:
        self.phase = "forward"
        self.whole = whole
        self.counted: collections.Counter[str] = collections.Counter()
        self._sends: list[Send] = []
        self._is_on = False

    def start(self) -> None:
        """Forgets everything, and records from now on."""
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
        """Records a send; does nothing outside of an observed step.

        Args:
            operation: What is done.
            tensors: What this process sends.
            group: The mesh axis along which it goes.
            ranks: The number of ranks or devices along it.
            to: The receiver, if it is a message.
            phase: The phase, if it is not the current one.
            source: The sender, if it is not this process.
        """
        if self._is_on:
            size = sum(tensor.nbytes for tensor in tensors)
            send = Send(phase or self.phase, operation, group, ranks, size, to=to, source=source, at=time.time())
            self._sends.append(send)

    def count(self, numbers: Mapping[str, int]) -> None:
        """Counts what depends on the data; neither outside of an observed step nor what a backward pass computes again.

        Args:
            numbers: How many there are, by name.
        """
        if self._is_on and self.phase == "forward":
            self.counted.update(numbers)

    def stop(self) -> tuple[Send, ...]:
        """Records no more; returns what was recorded."""
        self._is_on = False
        return in_order(self._sends)

    def entering(self, phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a method with which a phase of the step begins.

        Args:
            phase: The phase.
            method: The method.
        """

        def entered(*arguments: object, **options: object) -> object:
            self.phase = phase
            return method(*arguments, **options)

        return entered
