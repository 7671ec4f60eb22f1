"""The places of Keras and TensorFlow at which a script is followed. Each is a method that is wrapped."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.trainers.epoch_iterator import EpochIterator
from tensorflow.python.eager import executor, record
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.saved_model import save

from samestep.common.steps.argument_names import WHOLE
from samestep.common.steps.recording import Recorder
from samestep.common.steps.wrapping import followed, preceded
from samestep.tf_impl.recording.between_steps import WRITES
from samestep.tf_impl.recording.examples import inputs_of, sums_of_words
from samestep.tf_impl.recording.gradient_transforms import OPTIMIZERS, is_scaling, note_scale, places, release, skipped
from samestep.tf_impl.recording.graphs.unseen import Unseen
from samestep.tf_impl.recording.predicted import follow_predictions
from samestep.tf_impl.recording.saving import follow_saving
from samestep.tf_impl.recording.session import Session
from samestep.tf_impl.recording.slots import Slots
from samestep.tf_impl.recording.tapes import TapeHooks
from samestep.tf_impl.recording.tensors import replica_id


class Hooks:
    """Follows a process from its installation on. Some state is thread-local because a strategy runs each replica in a thread."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        """Installs nothing yet.

        Args:
            session: The session, to which hooks report.
            recorder: The recorder, which guards the script from errors.
        """
        self._session, self._guard, self._recorder = session, recorder.guarded, recorder
        self._here, self.tapes = threading.local(), TapeHooks(session, recorder)

    def install(self) -> None:
        """Installs every hook into Keras and TensorFlow."""
        predictions = follow_predictions(self._session.predicted, self._here, self._recorder)
        for owner, name, follow in (
            (keras.layers.Layer, "__call__", self._follow_calls),
            (EpochIterator, "__iter__", self._follow_epochs),
            *((keras.Model, name, predictions) for name in ("predict", "predict_on_batch")),
            (tf.GradientTape, "__enter__", self.tapes.follow_begin),
            (tf.GradientTape, "gradient", self.tapes.follow_gradient),
            *((kind, "scale_loss", self.tapes.follow_scale) for kind in OPTIMIZERS),
            *((kind, "apply", self._follow_updates) for kind in OPTIMIZERS),
            *places(self._session, self._guard),
            *skipped(self._session, self._guard),
            (TFOptimizer, "_backend_update_step", self._follow_gradients),
            (TFOptimizer, "_all_reduce_sum_gradients", self._follow_reduction),
            (Function, "__call__", self._follow_functions),
            (ConcreteFunction, "_call_flat", Unseen(self._session.is_next_unseen, self._guard).follow),
            (Function, "_initialize_uninitialized_variables", self._follow_initializers),
            (executor, "new_executor", self._follow_executors),
            *((ResourceVariable, name, self._follow_writes) for name in WRITES),
            (save, "save_and_return_nodes", follow_saving(self._recorder)),
        ):
            original = getattr(owner, name, None)
            if original is not None:  # Keras 3.0 reduces no gradients
                wrapped = tf.autograph.experimental.do_not_convert(follow(original))
                setattr(owner, name, functools.wraps(original)(wrapped))

    def _follow_epochs(self, original: Callable[..., Any]) -> Callable[..., Any]:
        count = self._guard(self._session.count_pass)

        def begin(iterator: Any) -> Any:
            count()
            result = original(iterator)
            if (batches := vars(iterator).get("_epoch_iterator")) is not None:
                iterator._epoch_iterator = self._session.between.through(batches)
            return result

        return begin

    def _follow_calls(self, original: Callable[..., Any]) -> Callable[..., Any]:
        here, session, before = self._here, self._session, self._guard(self._before_call)
        after, see = self._guard(session.first.end_call), self._guard(session.predicted.see)

        def call(layer: Any, *arguments: Any, **keywords: Any) -> Any:
            if vars(here).get("is_inside") or in_stateless_scope():
                return original(layer, *arguments, **keywords)
            if is_recorded := record.could_possibly_record():
                before(layer, arguments, keywords)
            here.is_inside = True
            try:
                result = original(layer, *arguments, **keywords)
            finally:
                here.is_inside = False
            if is_recorded:
                session.results.add(result)
                after()
            elif layer.trainable_variables:  # a layer without weights only transforms data
                see(layer, result, session.function)
            return result

        return call

    def _before_call(self, layer: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Notes that an outermost layer is called while a tape records."""
        if any(isinstance(each, keras.KerasTensor) for each in keras.tree.flatten([arguments, keywords])):
            return
        self._session.add_model(layer)
        inputs = inputs_of(arguments, keywords, self._session.results)
        with record.stop_recording():
            if rows := [each for each in inputs if not each[0].endswith(WHOLE)]:
                names, tensors = zip(*rows, strict=True)
                self._session.journal().add_rows(*sums_of_words(tensors), names)
                self._session.between.add_call(replica_id(), layer)
            if whole := {name: sums_of_words([each])[0] for name, each in inputs[len(rows) :]}:
                self._session.journal().add_whole(whole)

    def _follow_updates(self, original: Callable[..., Any]) -> Callable[..., Any]:
        before, after = self._guard(self._before_update), self._guard(self._after_update)

        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            variables = None if trainable_variables is None else list(trainable_variables)
            if in_stateless_scope():
                return original(optimizer, grads, variables)
            between = self._session.between
            step, was_updating, between.is_updating = before(optimizer, variables), between.is_updating, True
            try:
                result = original(optimizer, grads, variables)
            finally:
                between.is_updating = was_updating
            if step is not None:
                after(*step)
            return result

        return apply

    def _before_update(self, optimizer: Any, variables: Sequence[Any] | None) -> tuple[Slots, tf.Tensor] | None:
        """Notes that an optimizer is about to step. Returns the arguments of `_after_update`; None if another makes it step."""
        self.tapes.manual.is_followed = False
        plan = self._session.plan(optimizer, optimizer._trainable_variables if variables is None else variables)
        slots = self._session.slots(plan)
        note_scale(optimizer, self._session)
        if not is_scaling(optimizer):
            slots.note_applied()
        if self._session.is_inner(optimizer):
            return None
        return slots, tf.cast(tf.convert_to_tensor(optimizer.learning_rate), tf.float64)

    def _after_update(self, slots: Slots, lr: tf.Tensor) -> None:
        """Notes that an optimizer has stepped."""
        slots.commit(lr)
        self._session.step_was_taken()

    def _follow_gradients(self, original: Callable[..., Any]) -> Callable[..., Any]:
        before, after = self._guard(functools.partial(release, self._session)), self._guard(self._after_gradients)

        def update(optimizer: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
            grads, self._here.is_reduced = list(grads), False
            seen = None if in_stateless_scope() else before(optimizer, grads, trainable_variables)
            result = original(optimizer, seen or grads, trainable_variables, learning_rate)
            if not in_stateless_scope():
                after(optimizer, grads, trainable_variables)
            return result

        return update

    def _after_gradients(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Notes that the variables were updated with gradients."""
        plan = self._session.plan(optimizer)
        slots = self._session.slots(plan)
        plan.num_in_rows = sum(isinstance(each, tf.IndexedSlices) for each in gradients)
        if not self._here.is_reduced:
            for phase in plan.phases:
                slots.see_gradients(phase, plan.ordered(gradients, variables))
        slots.note_updated()

    def _follow_reduction(self, original: Callable[..., Any]) -> Callable[..., Any]:
        after = self._guard(self._after_reduction)

        def reduce(optimizer: Any, grads_and_vars: Any) -> Any:
            pairs = list(grads_and_vars)
            reduced = list(original(optimizer, pairs))
            after(optimizer, pairs, reduced)
            return reduced

        return reduce

    def _after_reduction(self, optimizer: Any, own: Sequence[Any], reduced: Sequence[Any]) -> None:
        """Notes that gradients were summed over the replicas. Keras 3.4 calls this outside of replicas, where it does nothing."""
        plan = self._session.plan(optimizer)
        if plan.num_replicas > 1 and tf.distribute.get_replica_context():
            slots = self._session.slots(plan)
            slots.see_gradients("local", plan.ordered(*zip(*own, strict=True)))
            slots.see_gradients("gradient", plan.ordered(*zip(*reduced, strict=True)))
            self._here.is_reduced = True

    def _follow_functions(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session, write = self._session, self._guard(self._session.write_steps)
        manual = self.tapes.manual
        before, after = self._guard(manual.end_step), self._guard(manual.end_call)
        begin_pass, returned = self._guard(session.begin_pass), self._guard(session.predicted.add)

        def call(function: Any, *arguments: Any, **keywords: Any) -> Any:
            if not tf.executing_eagerly():
                return original(function, *arguments, **keywords)
            if manual.is_followed:
                before()
            begin_pass()
            outer, session.function = session.function, function
            try:
                result = original(function, *arguments, **keywords)
            finally:
                session.function = outer
            if function in session.steppers:
                write()
            elif models := session.predicted.models_in(function):
                returned(models, result)
            if manual.is_followed:
                after(function)
            return result

        return call

    def _follow_writes(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session, before = self._session, self._guard(lambda variable: self._session.between.write(variable))

        def write(variable: Any, *arguments: Any, **keywords: Any) -> Any:
            if session.between.watches(variable) and tf.executing_eagerly():
                before(variable)
            return original(variable, *arguments, **keywords)

        return write

    def _follow_executors(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def note(enable_async: bool, *_: object, **__: object) -> None:
            self._session.is_async = self._session.is_async or enable_async

        return preceded(original, note)

    def _follow_initializers(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return followed(original, self._guard(lambda *_: self._session.first.see()))
