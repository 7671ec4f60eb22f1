"""Where scripts scale losses and clip gradients on TensorFlow: in optimizers of Keras."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from samestep.common.steps.gradient_transforms import CLIP_NORM, LOSS_SCALE
from samestep.tf_impl.recording.session import Session


def note_scale(optimizer: Any, session: Session) -> None:
    """Writes down the scale of the loss, in the step that an optimizer is about to take.

    Args:
        optimizer: Keras'.
        session: Has the counters.
    """
    if isinstance(optimizer, LossScaleOptimizer):
        scale = optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale
    else:
        scale = vars(optimizer).get("loss_scale_factor")
    if scale is not None:
        number = tf.cast(tf.convert_to_tensor(scale), tf.float64)
        nothing = tf.constant(float("nan"), tf.float64)
        session.counters().transforms[LOSS_SCALE].assign(tf.where(number == 1, nothing, number))


def follow_clipping(
    original: Callable[..., Any], session: Session, guard: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    """Wraps the method of an optimizer that clips. Each replica clips its own, and their norms are no number of the step.

    Args:
        original: The method.
        session: Has the counters.
        guard: Makes a hook of a function, which ends no script.
    """

    @guard
    def before(optimizer: Any, gradients: Sequence[Any]) -> None:
        if session.plan(optimizer).num_replicas == 1:
            norm = tf.linalg.global_norm([each for each in gradients if each is not None])
            session.counters().transforms[CLIP_NORM].assign(tf.cast(norm, tf.float64))

    def clip(optimizer: Any, grads: Any) -> Any:
        if optimizer.global_clipnorm and not in_stateless_scope():
            before(optimizer, grads)
        return original(optimizer, grads)

    return clip
