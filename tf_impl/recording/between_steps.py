"""What a script does between two steps: it begins passes through its data, and callbacks and other eager code write weights."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from samestep.common.steps.gradient_transforms import BACKWARD_PASSES
from samestep.common.steps.projections import sum_of_bits
from samestep.tf_impl.recording.journal import Journal
from samestep.tf_impl.recording.plans import UpdatePlan

WRITES = ("assign", "assign_add", "assign_sub", "scatter_update", "scatter_nd_update", "_restore_from_tensors")
"""The methods of a variable of TensorFlow that write it."""


class BetweenSteps:
    """Counts passes and writes for the next step. Writes count by what they have changed when that step begins."""

    def __init__(self, journals: Mapping[int, Journal]) -> None:
        """Starts without passes or writes.

        Args:
            journals: The journals of the replicas, which have the number of the next step.
        """
        self._journals = journals
        self._passes, self._passes_written = 0, dict[int, int]()
        self._num_open, self._over = 0, -1
        self._callers, self._num_calls, self._has_more_calls = set[int](), dict[int, int](), False
        self._trained, self.is_updating = dict[int, weakref.ref[Any]](), False
        self._number, self._begun = 0, 0
        self.before, self._written = dict[int, tuple[Any, int]](), dict[int, int]()

    def watch(self, plan: UpdatePlan, weights: Iterable[Any]) -> None:
        """Watches the variables that an optimizer updates; a script without an optimizer writes its own variables.

        Args:
            plan: The plan of the optimizer.
            weights: The variables of one replica.
        """
        if plan.has_optimizer:
            pairs = zip(plan.held, weights, strict=True)
            self._trained |= {id(weight): weakref.ref(weight) for held, weight in pairs if held.tensor.is_trained}

    def add_call(self, replica: int, model: Any) -> None:
        """Notes that a model is called on data.

        Args:
            replica: The replica.
            model: The model.
        """
        self._callers.add(id(model))
        self._num_calls[replica] = self._num_calls.get(replica, 0) + 1

    def end_calls(self, replica: int) -> None:
        """Ends the calls of a step, in a graph or eagerly; of more than one call, not all were given a batch of the data."""
        self._has_more_calls |= self._num_calls.pop(replica, 0) > 1 or len(self._callers) > 1

    def count_pass(self) -> None:
        """Notes that Keras begins a pass through data."""
        self._passes, self._over = self._passes + 1, -1

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields the batches of a pass, and notes which step is the first one after it, unless another pass goes on."""
        self._num_open += 1
        try:
            yield from batches
        finally:
            self._num_open -= 1
            if not self._num_open:
                self._over = self._next_number()

    def watches(self, variable: Any) -> bool:
        """Returns whether a variable is watched, and no optimizer updates it now."""
        made = self._trained.get(id(variable))
        return made is not None and made() is variable and not self.is_updating

    def write(self, variable: Any) -> None:
        """Notes that eager code is about to write a watched variable."""
        number = self._next_number()
        if number != self._number:
            self._number, self.before = number, {}
        if id(variable) not in self.before and variable.is_initialized():
            self.before[id(variable)] = variable, sum_of_bits(variable.numpy())

    def begin(self, is_tape: bool) -> None:
        """Notes that a tape or a call of a tf.function begins, which is the next step or an evaluation.

        Args:
            is_tape: Whether it is a tape, within whose step weights may be written and set back.
        """
        number = self._next_number()
        if number != self._number:
            self.before = {}
        elif self.before and number != self._begun:  # the first step's weights are recorded
            changed = sum(sum_of_bits(each.numpy()) != bits for each, bits in self.before.values())
            self._written = {number: changed} if changed else {}
        if is_tape:
            self._begun = number

    def _next_number(self) -> int:
        return min((journal.num_read for journal in self._journals.values()), default=0)

    def is_empty(self, replica: int, number: int) -> bool:
        """Returns whether nothing has happened before a step.

        Args:
            replica: The replica that takes it.
            number: The number of the step.
        """
        return self._passes == self._passes_written.get(replica) and number not in (*self._written, self._over)

    def counts(self, replica: int, number: int, num_passes: int) -> dict[str, int]:
        """Returns the counts of a step that is written.

        Args:
            replica: The replica that takes it.
            number: The number of the step.
            num_passes: The number of its backward passes; with several optimizers, that of each.
        """
        passes = self._passes - self._passes_written.get(replica, 0)
        self._passes_written[replica] = self._passes
        found = {"data_passes": passes, "passes_over": int(number == self._over)}
        found |= {"more_calls": int(passes and self._has_more_calls), "written_tensors": self._written.get(number, 0)}
        found[BACKWARD_PASSES] = num_passes if num_passes > 1 else 0
        return {name: count for name, count in found.items() if count}
