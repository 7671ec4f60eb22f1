"""Follows scripts that train with Keras on PyTorch, whose optimizers are not torch's."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from samestep.common.steps.keras.scalars import scalars_of, written
from samestep.common.steps.recording import Recorder
from samestep.common.steps.wrapping import followed, preceded
from samestep.torch_impl.recording.gradient_transforms import follow_keras_transforms
from samestep.torch_impl.recording.hooks import Hooks
from samestep.torch_impl.recording.keras.layers import GIVEN
from samestep.torch_impl.recording.session import Session
from samestep.torch_impl.recording.step.examples import tensors_in


class KerasGroups:
    """An adapter that presents an optimizer of Keras like one of torch, as far as the recorder reads it."""

    def __init__(self, optimizer: Any) -> None:
        """Stores the optimizer; its numbers are read later, because they change.

        Args:
            optimizer: The optimizer of Keras.
        """
        self._optimizer, self.updated = optimizer, ()  # type: Any, Sequence[Any]

    @property
    def param_groups(self) -> Sequence[Mapping[str, object]]:
        """The only parameter group: the variables of the last update, because `compile` registers those of the whole model."""
        optimizer = self._optimizer
        variables = self.updated or optimizer._trainable_variables
        rate = {"lr": written(float(np.asarray(optimizer.learning_rate)))}
        return [{"params": [each.value for each in variables]} | rate | scalars_of(optimizer, variables)]


def follow_keras(keras: ModuleType, session: Session, recorder: Recorder, hooks: Hooks) -> None:
    """Follows Keras in addition to torch.

    Args:
        keras: The package.
        session: The session to report to.
        recorder: Keeps our errors from the script.
        hooks: The hooks of torch.
    """
    recorder.framework = "keras on torch"
    if recorder.options.float64:
        keras.config.set_floatx("float64")
    groups: dict[int, KerasGroups] = {}
    optimizers = keras.src.optimizers
    keras.layers.Layer.__call__ = hooks.follow_calls(keras.layers.Layer.__call__)

    def of(optimizer: Any) -> Any:
        return groups.setdefault(id(optimizer), KerasGroups(optimizer))

    base = optimizers.base_optimizer.BaseOptimizer
    base.apply = preceded(base.apply, recorder.guarded(lambda *_, **__: session.expect_update()))
    parallel = importlib.import_module("keras.src.backend.torch.optimizers.torch_parallel_optimizer")
    for kind in (parallel.TorchParallelOptimizer, base):
        kind._backend_update_step = _followed_update(kind._backend_update_step, session, recorder, of)
    follow_keras_transforms(optimizers, session, recorder.guarded, of)
    for kind in (keras.losses.Loss, keras.src.trainers.compile_utils.CompileLoss):
        kind.__call__ = _followed_loss(kind.__call__, session, recorder)


def _followed_loss(original: Callable[..., Any], session: Session, recorder: Recorder) -> Callable[..., Any]:
    @recorder.guarded
    def give(result: Any, loss: Any, y_true: Any, *_: object, **__: object) -> None:
        if isinstance(result, torch.Tensor) and result.requires_grad:
            session.targets.give([each for each in tensors_in([y_true]) if not each.requires_grad])

    return followed(original, give)  # a loss of several outputs has by then called the loss of each


def _followed_update(
    original: Callable[..., Any], session: Session, recorder: Recorder, of: Callable[[Any], Any]
) -> Callable[..., Any]:
    @recorder.guarded
    def before(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], *_: object) -> None:
        pairs = zip(variables, gradients, strict=True)
        given = [(variable.value, gradient) for variable, gradient in pairs if gradient is not None]
        of(optimizer).updated = variables
        session.losses.divide(optimizer.gradient_accumulation_steps or 1)
        for parameter, gradient in given:
            setattr(parameter, GIVEN, gradient)
        try:
            session.before_update(of(optimizer), (of(optimizer),), {})
        finally:
            for parameter, _ in given:
                delattr(parameter, GIVEN)

    @recorder.guarded
    def after(_: object, optimizer: Any, *given: object) -> None:
        session.after_update(of(optimizer))

    return followed(preceded(original, before), after)
