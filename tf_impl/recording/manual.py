"""Scripts without an optimizer: they write the variables of Keras layers, or their own, with the gradients of a tape.

A step ends where the variables have changed between two passes. What one call of a tf.function does is at most one step.
"""

import gc
import weakref
from collections.abc import Collection, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer

from samestep.tf_impl.recording.session import Session
from samestep.tf_impl.recording.statistics import unpack

_NO_RATE = float("nan")


class ManualSteps:
    """The steps of a script without an optimizer."""

    def __init__(self, session: Session) -> None:
        """Follows nothing until a tape is asked for gradients.

        Args:
            session: The session, which writes the steps.
        """
        self._session = session
        self.is_followed: bool | None = None
        self._functions = weakref.WeakSet[Any]()
        self._is_due = self._has_begun = False
        self._place: Any = None
        self._gradients: list[Any] = []
        self._bits: np.ndarray | None = None

    def begin(self) -> None:
        """Notes that the first tape begins to record: without Keras layers, the script may train any of its variables."""
        if self._has_begun:
            return
        self._has_begun = True
        kinds = {type(each) for each in gc.get_objects()}
        if self._is_manual(kinds) and not _has(kinds, keras.layers.Layer):
            own = {kind for kind in kinds if issubclass(kind, tf.Variable)}
            found = [each for each in gc.get_objects() if type(each) in own and each.trainable]
            self._session.add_variables(sorted(found, key=lambda each: int(each._unique_id.rpartition("_")[2])))

    def _is_manual(self, kinds: Collection[type]) -> bool:
        return not tf.distribute.has_strategy() and not _has(kinds, BaseOptimizer)

    def add_gradients(self, variables: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Notes the gradients that a tape returned; those of several passes before an update are added.

        Args:
            variables: The variables.
            gradients: The gradient of each; None if there is none.
        """
        if self.is_followed is None:
            kinds = {type(each) for each in gc.get_objects()}
            has_models = bool(self._session.models) or not _has(kinds, keras.layers.Layer)
            self.is_followed = has_models and self._is_manual(kinds)
        if not self.is_followed:
            return
        plan = self._session.plan(None, variables)
        slots = self._session.slots(plan)
        is_eager, place = tf.executing_eagerly(), tf.compat.v1.get_default_graph()
        before = self._gradients if self._place is place and (self._is_due or not is_eager) else []
        found = plan.ordered(gradients, variables)
        self._place, self._gradients = place, list(map(_sum, found, before)) if before else found
        slots.see_gradients("gradient", self._gradients, is_before_commit=False)
        with tf.init_scope():
            if self._bits is None and all(each.is_initialized() for each in slots.weights):
                self._bits = self._seen_bits()
        if is_eager:
            self._is_due = True
        else:
            self._functions.add(self._session.function)

    def end_call(self, function: Any) -> None:
        """Notes that a call of a tf.function has ended.

        Args:
            function: The function.
        """
        self._is_due |= function in self._functions
        self.end_step()

    def end_step(self) -> None:
        """Writes the last step, if there was one, because a pass begins or the script ends."""
        if not self._is_due or not tf.executing_eagerly():
            return
        bits = self._seen_bits()
        if self._bits is None or not np.array_equal(bits, self._bits):
            self._bits, self._is_due = bits, False
            slots = self._session.slots(self._session.plan(None))
            slots.commit(tf.constant(_NO_RATE, tf.float64))
            self._session.step_was_taken()

    def _seen_bits(self) -> np.ndarray:
        """Returns the sums of bits of trained variables only, since buffers change in each pass."""
        plan = self._session.plan(None)
        weights = [each.read_value() for each in self._session.slots(plan).weights]
        bits = unpack(plan.statistics(weights).numpy(), plan.is_float64)["bits"]
        return bits[[each.tensor.is_trained for each in plan.held]]


def _has(kinds: Collection[type], wanted: type) -> bool:
    return any(issubclass(kind, wanted) for kind in kinds)


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return tf.convert_to_tensor(one) + tf.convert_to_tensor(other)
