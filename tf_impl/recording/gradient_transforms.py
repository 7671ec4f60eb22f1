"""Where scripts scale losses and clip gradients on TensorFlow: in optimizers of Keras, and by a function of TensorFlow."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from samestep.common.steps.gradient_transforms import CLIP_MOST, CLIP_NORM, LOSS_SCALE
from samestep.common.steps.wrapping import Wrap, followed, preceded
from samestep.tf_impl.recording.session import Session

OPTIMIZERS = (BaseOptimizer, LossScaleOptimizer)
"""The kinds of optimizers: the second scales the loss of another one, which takes its steps."""
Place = tuple[Any, str, Wrap]
"""The place where a script is followed: a class or a module, the name of its function, and the function that wraps it."""


def is_scaling(optimizer: Any) -> bool:
    """Returns whether an optimizer scales the loss of another one."""
    return isinstance(optimizer, LossScaleOptimizer)


def note_scale(optimizer: Any, session: Session) -> None:
    """Writes down the scale of the loss, in the step that an optimizer is about to take.

    Args:
        optimizer: The Keras optimizer.
        session: The session, which has the journal.
    """
    if is_scaling(optimizer):
        scale = optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale
    else:
        scale = vars(optimizer).get("loss_scale_factor")
    if scale is not None:
        number = tf.cast(tf.convert_to_tensor(scale), tf.float64)
        nothing = tf.constant(float("nan"), tf.float64)
        session.journal().add_transform(LOSS_SCALE, tf.where(number == 1, nothing, number))


def release(session: Session, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Returns the gradients that an update takes; large ones are seen before the update, so they are not kept until it is made.

    Args:
        session: The session, which has the slots.
        optimizer: The Keras optimizer, which is about to update its variables.
        gradients: The gradient of each variable.
        variables: The variables.
    """
    plan = session.plan(optimizer)
    if plan.num_replicas > 1:
        return [*gradients]
    released = session.slots(plan).release(plan.ordered(gradients, variables))
    return [released.get(id(each), each) for each in gradients]


def places(session: Session, guard: Wrap) -> Iterator[Place]:
    """Yields the places where the clipping of gradients is followed.

    Args:
        session: The session, which has the journal.
        guard: Makes a function a hook whose errors do not end the script.
    """

    @guard
    def before(optimizer: Any, grads: Sequence[Any]) -> None:
        if not optimizer.global_clipnorm or in_stateless_scope():
            return
        # Each of several replicas clips its own gradients, and their norms are not numbers of the step.
        if session.plan(optimizer).num_replicas == 1:
            norm = tf.linalg.global_norm([each for each in grads if each is not None])
            session.journal().add_transform(CLIP_NORM, tf.cast(norm, tf.float64))

    @guard
    def after(found: tuple[Any, Any], t_list: Any, clip_norm: Any, *_: object, **__: object) -> None:
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            for name, number in ((CLIP_NORM, found[1]), (CLIP_MOST, clip_norm)):
                session.journal().add_transform(name, tf.cast(number, tf.float64))

    yield BaseOptimizer, "_clip_gradients", functools.partial(preceded, before=before)
    yield tf, "clip_by_global_norm", functools.partial(followed, after=after)


def skipped(session: Session, guard: Wrap) -> Iterator[Place]:
    """Yields the places where an optimizer that scales the loss leaves out an update; no other hook is given its gradients.

    Args:
        session: The session, which has the slots.
        guard: Makes a function a hook whose errors do not end the script.
    """
    given: list[tuple[Any, Sequence[Any], Sequence[Any]]] = []

    def follow_scaled(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            given.append((optimizer, list(grads), trainable_variables or optimizer._trainable_variables))
            try:
                return original(optimizer, given[-1][1], trainable_variables)
            finally:
                given.pop()

        return apply

    @guard
    def skip(_: Any) -> None:
        """Sees the gradients that are not finite, if the update is left out."""
        if not given or (plan := session.plan(optimizer := given[-1][0])).num_replicas > 1:
            return
        scale = optimizer.dynamic_scale
        unscaled = [each if each is None else keras.ops.divide(each, scale) for each in given[-1][1]]
        session.slots(plan).see_gradients("gradient", plan.ordered(unscaled, given[-1][2]))

    yield LossScaleOptimizer, "_common_apply", follow_scaled
    yield LossScaleOptimizer, "_stateful_handle_non_finite_grads", functools.partial(preceded, before=skip)
