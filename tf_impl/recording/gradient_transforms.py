"""Where scripts scale losses and clip gradients on TensorFlow: in optimizers of Keras, and by a function of TensorFlow."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from samestep.common.steps.gradient_transforms import CLIP_MOST, CLIP_NORM, LOSS_SCALE
from samestep.tf_impl.recording.session import Session

OPTIMIZERS = (BaseOptimizer, LossScaleOptimizer)
"""The kinds of optimizers: the second scales the loss of another one, which takes its steps."""


def is_scaling(optimizer: Any) -> bool:
    """Returns whether an optimizer is of the second kind."""
    return isinstance(optimizer, LossScaleOptimizer)


def note_scale(optimizer: Any, session: Session) -> None:
    """Writes down the scale of the loss, in the step that an optimizer is about to take.

    Args:
        optimizer: Keras'.
        session: Has the journal.
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
    """Returns the gradients as an update may take them: large ones are seen before it, and not kept until it is made.

    Args:
        session: Has the slots.
        optimizer: Keras', which is about to update its variables.
        gradients: The gradient of each.
        variables: The variables.
    """
    plan = session.plan(optimizer)
    if plan.num_replicas > 1:
        return [*gradients]
    released = session.slots(plan).release(plan.ordered(gradients, variables))
    return [released.get(id(each), each) for each in gradients]


def places(
    session: Session, guard: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]]:
    """Yields where gradients are followed that are clipped: a class or a module, its function, and what wraps it.

    Args:
        session: Has the journal.
        guard: Makes a hook of a function, which ends no script.
    """

    @guard
    def before(optimizer: Any, gradients: Sequence[Any]) -> None:
        if (
            session.plan(optimizer).num_replicas == 1
        ):  # else each clips its own, and their norms are no number of the step
            norm = tf.linalg.global_norm([each for each in gradients if each is not None])
            session.journal().add_transform(CLIP_NORM, tf.cast(norm, tf.float64))

    def follow(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(optimizer: Any, grads: Any) -> Any:
            if optimizer.global_clipnorm and not in_stateless_scope():
                before(optimizer, grads)
            return original(optimizer, grads)

        return clip

    @guard
    def after(norm: Any, most: Any) -> None:
        if tf.distribute.get_strategy().num_replicas_in_sync == 1:
            for name, number in ((CLIP_NORM, norm), (CLIP_MOST, most)):
                session.journal().add_transform(name, tf.cast(number, tf.float64))

    def follow_function(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(t_list: Any, clip_norm: Any, *arguments: Any, **keywords: Any) -> Any:
            clipped, norm = original(t_list, clip_norm, *arguments, **keywords)
            after(norm, clip_norm)
            return clipped, norm

        return clip

    yield BaseOptimizer, "_clip_gradients", follow
    yield tf, "clip_by_global_norm", follow_function


def skipped(
    session: Session, guard: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]]:
    """Yields where an optimizer that scales the loss leaves out an update, whose gradients nobody else is given; as `places`.

    Args:
        session: Has the slots.
        guard: Makes a hook of a function, which ends no script.
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
    def skip() -> None:
        """Sees what is not finite, where the update is left out."""
        if not given or (plan := session.plan(optimizer := given[-1][0])).num_replicas > 1:
            return
        scale = optimizer.dynamic_scale
        unscaled = [each if each is None else keras.ops.divide(each, scale) for each in given[-1][1]]
        session.slots(plan).see_gradients("gradient", plan.ordered(unscaled, given[-1][2]))

    def follow_skipped(original: Callable[..., Any]) -> Callable[..., Any]:
        def leave_out(optimizer: Any) -> Any:
            skip()
            return original(optimizer)

        return leave_out

    yield LossScaleOptimizer, "_common_apply", follow_scaled
    yield LossScaleOptimizer, "_stateful_handle_non_finite_grads", follow_skipped
