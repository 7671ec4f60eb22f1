"""The places of Keras at which a script is followed that trains with it on PyTorch: its optimizers are not torch's."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from samestep.common.steps.keras_scalars import scalars_of, written
from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.hooks import Hooks
from samestep.torch_impl.recording.keras_layers import GIVEN
from samestep.torch_impl.recording.session import Session


class KerasGroups:
    """An optimizer of Keras as one of torch, as far as it is looked at."""

    def __init__(self, optimizer: Any) -> None:
        """Takes no numbers yet, for they change.

        Args:
            optimizer: Keras'.
        """
        self._optimizer = optimizer

    @property
    def param_groups(self) -> Sequence[Mapping[str, object]]:
        """The one group that it has."""
        optimizer = self._optimizer
        parameters = [variable.value for variable in optimizer._trainable_variables]
        return [
            {"params": parameters, "lr": written(float(np.asarray(optimizer.learning_rate)))} | scalars_of(optimizer)
        ]


def follow_keras(keras: ModuleType, session: Session, recorder: Recorder, hooks: Hooks) -> None:
    """Follows Keras as well as torch.

    Args:
        keras: The package.
        session: Is told what happens.
        recorder: Guards the script from errors.
        hooks: Those of torch.
    """
    recorder.framework = "keras on torch"
    if recorder.options.float64:
        keras.config.set_floatx("float64")
    groups: dict[int, KerasGroups] = {}
    optimizers = keras.src.optimizers
    keras.layers.Layer.__call__ = hooks.follow_calls(keras.layers.Layer.__call__)

    def of(optimizer: Any) -> Any:
        return groups.setdefault(id(optimizer), KerasGroups(optimizer))

    @recorder.guarded
    def before(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        pairs = zip(variables, gradients, strict=True)
        GIVEN.update({id(variable.value): gradient for variable, gradient in pairs if gradient is not None})
        session.losses.divide(optimizer.gradient_accumulation_steps or 1)
        session.before_update(of(optimizer), (of(optimizer),), {})
        GIVEN.clear()

    @recorder.guarded
    def after(optimizer: Any) -> None:
        session.after_update(of(optimizer))

    def follow_update(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def update(optimizer: Any, grads: Any, trainable_variables: Any, learning_rate: Any) -> Any:
            before(optimizer, grads, trainable_variables)
            result = original(optimizer, grads, trainable_variables, learning_rate)
            after(optimizer)
            return result

        return update

    _follow_gradients(optimizers.base_optimizer.BaseOptimizer, session, recorder)
    parallel = importlib.import_module("keras.src.backend.torch.optimizers.torch_parallel_optimizer")
    for kind in (parallel.TorchParallelOptimizer, optimizers.base_optimizer.BaseOptimizer):
        kind._backend_update_step = follow_update(kind._backend_update_step)
    _follow_scale(optimizers.loss_scale_optimizer.LossScaleOptimizer, session, recorder, of)


def _follow_gradients(kind: Any, session: Session, recorder: Recorder) -> None:
    """Follows gradients on their way into an optimizer."""
    expect, apply_all, clip_all = recorder.guarded(session.expect_update), kind.apply, kind._clip_gradients

    @recorder.guarded
    def add_norm(gradients: Sequence[Any]) -> None:
        session.add_scalar("clip_norm", torch.nn.utils.get_total_norm([each for each in gradients if each is not None]))

    @functools.wraps(apply_all)
    def apply(*arguments: Any, **keywords: Any) -> Any:
        expect()
        return apply_all(*arguments, **keywords)

    @functools.wraps(clip_all)
    def clip(optimizer: Any, grads: Any) -> Any:
        if optimizer.global_clipnorm:
            add_norm(grads)
        return clip_all(optimizer, grads)

    kind.apply, kind._clip_gradients = apply, clip


def _follow_scale(kind: Any, session: Session, recorder: Recorder, of: Callable[[Any], Any]) -> None:
    """Follows the optimizer that scales the loss of another."""
    scaled, skip, add = (recorder.guarded(each) for each in (session.scale_loss, session.skip, session.add_scalar))
    scale_loss, skipped = kind.scale_loss, kind._stateful_handle_non_finite_grads

    @functools.wraps(scale_loss)
    def scale(optimizer: Any, loss: Any) -> Any:
        result = scale_loss(optimizer, loss)
        scaled((result / loss).detach())
        return result

    @functools.wraps(skipped)
    def handle(optimizer: Any) -> None:
        skip(of(optimizer.inner_optimizer))
        add("loss_scale", float(optimizer.dynamic_scale))
        skipped(optimizer)

    kind.scale_loss, kind._stateful_handle_non_finite_grads = scale, handle
