"""Follows tapes: for which losses gradients are asked, and which gradients a script without an optimizer gets."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager import record

from samestep.common.steps.recording import Recorder
from samestep.common.steps.wrapping import followed, preceded
from samestep.tf_impl.recording.manual import ManualSteps
from samestep.tf_impl.recording.session import Session
from samestep.tf_impl.recording.tensors import KERAS_VARIABLE


class TapeHooks:
    """Follows tapes. Some state is thread-local because a strategy runs each replica in a thread."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        """Wraps nothing yet.

        Args:
            session: The session, to which hooks report.
            recorder: The recorder, which guards the script from errors.
        """
        self._session, self._guard = session, recorder.guarded
        self._here = threading.local()
        self.manual = ManualSteps(session)

    def follow_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the method that begins to record.

        Args:
            original: The method.
        """
        end_step, first = self._guard(self.manual.end_step), self._guard(self.manual.begin)
        begin_pass = self._guard(self._begin_pass)

        def begin(_: Any) -> None:
            if self.manual.is_followed:
                end_step()
            elif self.manual.is_followed is None:
                first()
            begin_pass()

        return preceded(original, begin)

    def _begin_pass(self) -> None:
        self._here.targets = []
        self._session.begin_pass(is_tape=True)

    def follow_gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the method that returns gradients.

        Args:
            original: The method.
        """
        before, after = self._guard(self._before_backward), self._guard(self._after_backward)
        return followed(preceded(original, before), after)

    def _before_backward(self, tape: Any, target: Any, sources: Any, *_: object, **__: object) -> None:
        """Notes that a tape is asked for gradients, which are those of a loss if the sources are variables."""
        if any(_is_variable(each) for each in keras.tree.flatten(sources)):
            scaled, plain = vars(self._here).get("scaled", (None, None))
            with record.stop_recording():
                for each in self._new_targets(target):
                    self._session.journal().add_loss(tf.reduce_sum(plain if each is scaled else each))

    def _new_targets(self, target: Any) -> list[Any]:
        """Returns the targets whose gradients were not asked for before, by any sources, since the last tape began."""
        known = vars(self._here).setdefault("targets", [])
        new = [each for each in keras.tree.flatten(target) if not any(made() is each for made in known)]
        known += [weakref.ref(each) for each in new]
        return new

    def _after_backward(self, found: Any, tape: Any, target: Any, sources: Any, *_: object, **__: object) -> None:
        """Notes the gradients that a tape returned."""
        if self.manual.is_followed is False:
            return
        variables, gradients = keras.tree.flatten(sources), keras.tree.flatten(found)
        if variables and all(_is_variable(each) for each in variables):
            with record.stop_recording():
                self.manual.add_gradients(variables, gradients)

    def follow_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the method of an optimizer that multiplies a loss.

        Args:
            original: The method.
        """

        def note(scaled: Any, _: Any, loss: Any) -> None:
            if scaled is not loss:
                self._here.scaled = scaled, loss

        return followed(original, note)


def _is_variable(value: Any) -> bool:
    return isinstance(value, (KERAS_VARIABLE, tf.Variable))
