"""Our own variables, into which a graph writes statistics of the tensors of one optimizer. The host reads them afterwards."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

from samestep.common.steps.record import Phase
from samestep.tf_impl.recording.graphs.unseen import condition_of, mark
from samestep.tf_impl.recording.joined import JoinedNote, JoinedNotes
from samestep.tf_impl.recording.journal import Journal
from samestep.tf_impl.recording.rings import Ring, is_compiled, own_variable
from samestep.tf_impl.recording.statistics import NUMBERS, HalfProjected, unpack

if TYPE_CHECKING:  # it has slots
    from samestep.tf_impl.recording.plans import UpdatePlan


class Slots:
    """The variables into which the steps of one optimizer on one replica are written."""

    def __init__(self, journal: Journal, plan: "UpdatePlan", weights: Sequence[Any]) -> None:
        """Makes the variables.

        Args:
            journal: The journal of the replica.
            plan: What is recorded of the optimizer.
            weights: The TensorFlow variables of the replica.
        """
        self.weights: Sequence[Any] = weights
        self._journal, self._optimizer, self._statistics = journal, plan.number, plan.statistics
        self._updated, self._always_updates = plan.updated or frozenset(), plan.updated is not None
        self._joined: JoinedNotes | None = None
        size = len(weights) * NUMBERS
        self._gradients = {phase: own_variable(np.zeros(size, np.int64), tf.int64) for phase in plan.phases}
        self._is_applied, self._is_updated = (own_variable(False, tf.bool) for _ in range(2))
        self._seen = Ring(journal.capacity, (len(plan.phases) + 1) * size)
        self._given: dict[Phase, Sequence[tf.Tensor | HalfProjected | None]] = {}
        self._early: dict[int, HalfProjected] = {}
        self._commits: dict[tuple[bool, int], Any] = {}

    def forget_weights(self) -> None:
        """Stops keeping the weights alive."""
        self.weights = ()
        self._commits.clear()

    def note_applied(self) -> None:
        """Notes that the optimizer was given gradients: it updates its variables, or accumulates."""
        if not self._always_updates:
            self._is_applied.assign(True)

    def note_updated(self) -> None:
        """Notes that the variables were updated."""
        if not self._always_updates:
            self._is_updated.assign(True)

    def release(self, gradients: Sequence[tf.Tensor | None]) -> dict[int, tf.Tensor]:
        """Sees large gradients before an update, which can then overwrite them; in a graph on a CPU it would otherwise copy them.

        Args:
            gradients: In the order of the weights.

        Returns:
            What the update takes instead, by the ids of the gradients: the same numbers, after they were seen.
        """
        released, self._early = dict[int, tf.Tensor](), {}
        if not self._always_updates or tf.executing_eagerly() or is_compiled() or not _has_one_device():
            return released
        if (is_looked_at := self._journal.is_looked_at(self._joins())) is True:
            return released
        for place, each in enumerate(gradients):
            seen = self._statistics.see(place, each, is_looked_at) if isinstance(each, tf.Tensor) else None
            if seen is not None:
                self._early[place] = seen
                with tf.control_dependencies([seen.square]):
                    released[id(each)] = tf.identity(each)
        return released

    def see_gradients(self, phase: Phase, gradients: Sequence[tf.Tensor | None], is_before_commit: bool = True) -> None:
        """Sees gradients, if this step is looked at.

        Args:
            phase: The phase of the gradients.
            gradients: The gradients in the order of the weights.
            is_before_commit: Whether `commit` follows at once, unless the optimizer only accumulates.
        """
        if phase not in self._gradients:
            return
        if is_before_commit and self._always_updates and not tf.executing_eagerly():
            # one condition for these and the weights costs less than two
            self._given[phase] = [self._early.get(place, each) for place, each in enumerate(gradients)]
            return
        slot, is_looked_at = self._gradients[phase], self._journal.is_looked_at(self._joins())
        _do_where(is_looked_at, lambda: slot.assign(self._statistics(gradients), read_value=False))

    def commit(self, lr: tf.Tensor) -> None:
        """Ends a step, unless the optimizer only accumulated.

        Args:
            lr: The learning rate that the step was taken with.
        """
        is_joined = self._joins()
        if not tf.executing_eagerly():
            self._commit_in_graph(lr, is_joined)
        else:
            key = is_joined, len(self._journal.transforms)  # some scripts clip only after their first pass
            if key not in self._commits:
                commit = functools.partial(self._commit_in_graph, is_joined=is_joined)
                self._commits[key] = tf.function(commit, autograph=False).get_concrete_function(lr)
            self._commits[key](lr)
        self._journal.open_step.add(self._updated) if self._always_updates else self._journal.open_step.close()

    def _joins(self) -> bool:
        """Returns whether another optimizer has ended the step that this one takes."""
        return self._always_updates and self._journal.open_step.takes(self._updated)

    def _commit_in_graph(self, lr: tf.Tensor, is_joined: bool) -> None:
        if is_joined:
            self._join_in_graph(lr)
            return
        has_ended: Any = True
        is_skipped: Any = False
        is_looked_at = self._journal.is_looked_at()
        if not self._always_updates:
            is_updated = self._is_updated.read_value()
            has_ended, is_skipped = is_updated | ~self._is_applied.read_value(), ~is_updated
            is_looked_at &= has_ended
            self._is_applied.assign(False)
            self._is_updated.assign(False)
        given, self._given = self._given, {}
        is_looked_at = _do_where(is_looked_at, lambda: self._write_tensors(given))
        self._journal.end_step(has_ended, self._optimizer, is_skipped, is_looked_at, lr)

    def _join_in_graph(self, lr: tf.Tensor) -> None:
        self._joined = self._joined or JoinedNotes(self._journal)
        given, self._given = self._given, {}
        is_looked_at = self._journal.is_looked_at(True)
        with tf.control_dependencies([_do_where(is_looked_at, lambda: self._write_tensors(given, True))]):
            self._joined.write(self._journal.number(True), lr)

    def joined(self, number: int) -> JoinedNote | None:
        """Returns what the optimizer added to the note of a step that another one had ended; None if it did not.

        Args:
            number: The number of the step.
        """
        return None if self._joined is None else self._joined.read(number)

    def _write_tensors(
        self, given: Mapping[Phase, Sequence[tf.Tensor | HalfProjected | None]], is_joined: bool = False
    ) -> tf.Operation:
        lists = [*(given[phase] for phase in self._gradients if phase in given), self.weights]
        *found, of_weights = tf.split(self._statistics(*lists), len(lists))
        seen = dict(zip((phase for phase in self._gradients if phase in given), found, strict=True))
        gradients = [
            seen[phase] if phase in seen else variable.read_value() for phase, variable in self._gradients.items()
        ]
        number = self._journal.number(is_joined)
        return self._seen.write(number, tf.concat([*gradients, of_weights], 0), number)

    def read(self, number: int, is_float64: bool) -> dict[Phase, np.ndarray]:
        """Returns the rows of the tensors in each phase of a step.

        Args:
            number: The number of the step, which was looked at and is among the last ones.
            is_float64: Whether the record is of a run in float64.
        """
        words = self._seen.at(number)
        assert words is not None
        phases: list[Phase] = [*self._gradients, "weight"]
        return dict(zip(phases, unpack(words, is_float64).reshape(len(phases), -1), strict=True))


def _do_where(condition: Any, action: Callable[[], tf.Operation]) -> tf.Tensor:
    """Runs an action in a graph if a condition holds.

    TensorFlow turns a condition into switches, through which every op of the action passes even if it is not run. A
    call of a function takes a fraction of that. It needs all tensors on one device.

    Args:
        condition: A tensor, or True.
        action: What to do; returns an op that has to be run.

    Returns:
        Whether the action was run, known once it was.
    """

    def done() -> tf.Tensor:
        with tf.control_dependencies([action()]):
            return tf.constant(True)

    if condition is True:
        return done()

    result = tf.cond(condition, done, lambda: tf.constant(False))
    if not tf.executing_eagerly() and _has_one_device():
        condition_of(result)._set_attr("_lower_using_switch_merge", AttrValue(b=False))
        if not is_compiled():
            mark(result)
    return result


@functools.cache
def _has_one_device() -> bool:
    return len(tf.config.list_logical_devices()) == 1
