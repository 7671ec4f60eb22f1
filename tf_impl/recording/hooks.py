"""The places in Keras and TensorFlow where a step is seen."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from tensorflow.python.eager import record as tape_record
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

from samestep.tf_impl.recording.hashing import sums_of_words
from samestep.tf_impl.recording.session import Session

_here = threading.local()


def replica_id() -> int:
    """The replica whose code runs; 0 outside of a strategy."""
    context = tf.distribute.get_replica_context()
    found = tf.get_static_value(context.replica_id_in_sync_group) if context else None
    return 0 if found is None else int(found)


def patch(session: Session) -> None:
    """Patches all places.

    Args:
        session: That is told.
    """
    for owner, name, around in (
        (keras.layers.Layer, "__call__", _around_call),
        (tf.GradientTape, "gradient", _around_gradient),
        (BaseOptimizer, "scale_loss", _around_scale_loss),
        (LossScaleOptimizer, "scale_loss", _around_scale_loss),
        (BaseOptimizer, "apply", _around_apply),
        (LossScaleOptimizer, "apply", _around_apply),
        (TFOptimizer, "_backend_update_step", _around_update),
        (TFOptimizer, "_all_reduce_sum_gradients", _around_reduction),
        (Function, "__call__", _around_function),
        (Function, "_initialize_uninitialized_variables", _around_initializers),
    ):
        plain = getattr(owner, name)
        setattr(owner, name, functools.wraps(plain)(tf.autograph.experimental.do_not_convert(around(plain, session))))


def _around_call(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_here, "is_in_call", False) or not tape_record.could_possibly_record() or in_stateless_scope():
            return plain(layer, *args, **kwargs)
        _here.is_in_call = True
        try:
            session.see_model(layer)
            _see_rows(session, args, kwargs)
            return plain(layer, *args, **kwargs)
        finally:
            _here.is_in_call = False

    return call


def _see_rows(session: Session, args: Any, kwargs: Any) -> None:
    given = keras.tree.flatten([args, [kwargs[name] for name in sorted(kwargs)]])
    tensors = [each for each in given if tf.is_tensor(each) or isinstance(each, np.ndarray)]
    if not tensors or any(isinstance(each, keras.KerasTensor) for each in given):
        return
    with tape_record.stop_recording():
        inputs = [tf.convert_to_tensor(each) for each in tensors if each.shape.rank != 0]
        session.counters_of(replica_id()).add_rows(sums_of_words(inputs))


def _around_gradient(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def gradient(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        found = plain(tape, target, sources, *args, **kwargs)
        if any(isinstance(each, keras.Variable | tf.Variable) for each in keras.tree.flatten(sources)):
            counters = session.counters_of(replica_id())
            for each in keras.tree.flatten(target):
                counters.add_loss(tf.reduce_sum(_unscaled(each)))
        return found

    return gradient


def _around_scale_loss(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def scale_loss(optimizer: Any, loss: Any) -> Any:
        scaled = plain(optimizer, loss)
        if scaled is not loss:
            _here.scaled = scaled, loss
        return scaled

    return scale_loss


def _unscaled(loss: Any) -> Any:
    scaled, plain = getattr(_here, "scaled", (None, None))
    return plain if loss is scaled else loss


def _around_apply(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> None:
        if in_stateless_scope():
            return plain(optimizer, grads, trainable_variables)
        if session.owner_of(optimizer) is not optimizer:
            session.slots_of(session.plan_of(optimizer), replica_id()).is_applied.assign(1)
            return plain(optimizer, grads, trainable_variables)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
        slots = session.slots_of(session.plan_of(optimizer, variables), replica_id())
        if not isinstance(optimizer, LossScaleOptimizer):
            slots.is_applied.assign(1)
        lr, scale = (tf.cast(tf.convert_to_tensor(each), tf.float64) for each in (optimizer.learning_rate, _scale(optimizer)))
        result = plain(optimizer, grads, trainable_variables)
        slots.commit(lr, scale)
        session.step_was_taken()
        return result

    return apply


def _scale(optimizer: Any) -> Any:
    if isinstance(optimizer, LossScaleOptimizer):
        return optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale
    return optimizer.loss_scale_factor or 1.0


def _around_update(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def update(optimizer: Any, grads: Any, variables: Any, learning_rate: Any) -> None:
        if in_stateless_scope():
            return plain(optimizer, grads, variables, learning_rate)
        _here.is_reduced = False
        result = plain(optimizer, grads, variables, learning_rate)
        plan = session.plan_of(optimizer)
        slots = session.slots_of(plan, replica_id())
        if not _here.is_reduced:
            slots.see_gradients("gradient", plan.ordered(grads, variables))
        slots.is_updated.assign(1)
        return result

    return update


def _around_reduction(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def reduce(optimizer: Any, pairs: Any) -> Any:
        pairs = list(pairs)
        reduced = list(plain(optimizer, pairs))
        plan = session.plan_of(optimizer)
        if tf.distribute.get_replica_context() and plan.num_replicas > 1:
            slots = session.slots_of(plan, replica_id())
            slots.see_gradients("local", plan.ordered(*zip(*pairs, strict=True)))
            slots.see_gradients("gradient", plan.ordered(*zip(*reduced, strict=True)))
            _here.is_reduced = True
        return reduced

    return reduce


def _around_function(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            return plain(function, *args, **kwargs)
        with session.calling(function):
            return plain(function, *args, **kwargs)

    return call


def _around_initializers(plain: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def initialize(function: Any, *args: Any) -> None:
        plain(function, *args)
        with tf.init_scope():
            session.see_initial_weights()

    return initialize
