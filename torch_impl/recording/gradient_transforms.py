"""Follows how scripts scale losses and clip gradients on PyTorch, with torch's functions or Keras' optimizers."""

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from samestep.common.steps.gradient_transforms import CLIP_CALLS, CLIP_NORM, CLIP_PART, LOSS_SCALE
from samestep.common.steps.wrapping import Wrap, followed, preceded
from samestep.torch_impl.recording.pieces import is_dtensor
from samestep.torch_impl.recording.places import share_of_norm
from samestep.torch_impl.recording.session import Session


def follow_transforms(session: Session, guard: Wrap) -> None:
    """Follows torch's clipping functions and its gradient scaler.

    Args:
        session: The session to report to.
        guard: Makes a function a hook.
    """
    for kind in ("norm", "value"):
        name = f"clip_grad_{kind}_"
        clip = _clipped(getattr(nn.utils, name), kind, session, guard)
        setattr(nn.utils, name, clip)
        setattr(nn.utils.clip_grad, name, clip)

    @guard
    def scaled(result: Any, scaler: Any, *_: object, **__: object) -> None:
        if scaler._enabled and scaler._scale is not None:
            session.scale_loss(scaler._scale)

    scaler = torch.amp.GradScaler
    scaler.scale, scaler.step = followed(scaler.scale, scaled), _scaled_step(scaler.step, session, guard)


_BOUNDS = ("max_norm", "clip_value")


def _clipped(original: Callable[..., Any], kind: str, session: Session, guard: Wrap) -> Callable[..., Any]:
    @guard
    def clipped(bound: float, norm: torch.Tensor | None) -> None:
        session.scalars.add(f"clip_max_{kind}", float(bound))
        session.scalars.count(CLIP_CALLS)
        if norm is not None and (share := share_of_norm(norm) if is_dtensor(norm) else norm) is not None:
            session.scalars.add(CLIP_NORM if share is norm else CLIP_PART, share)
        session.take_again()

    @functools.wraps(original)
    def clip(parameters: Any, bound: Any, *arguments: Any, **keywords: Any) -> Any:
        result = original(parameters, bound, *arguments, **keywords)
        clipped(bound, result)
        return result

    @functools.wraps(original)
    def called(*arguments: Any, **keywords: Any) -> Any:
        return clip(*arguments, **{"bound" if name in _BOUNDS else name: each for name, each in keywords.items()})

    return called


def _scaled_step(original: Callable[..., Any], session: Session, guard: Wrap) -> Callable[..., Any]:
    skip, add = guard(session.skip), guard(session.scalars.add)

    @functools.wraps(original)
    def step(scaler: Any, optimizer: Any, *arguments: Any, **keywords: Any) -> Any:
        scale = scaler._scale.clone() if scaler._enabled and scaler._scale is not None else None
        result = original(scaler, optimizer, *arguments, **keywords)
        if scale is not None:
            inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
            if not any(each() is inner for each in session.stepped):
                skip(inner)
            add(LOSS_SCALE, scale)
        return result

    return step


def follow_keras_transforms(
    optimizers: ModuleType, session: Session, guard: Wrap, of: Callable[[Any], torch.optim.Optimizer]
) -> None:
    """Follows Keras' optimizers that clip, and Keras' optimizer that wraps another one and scales its loss.

    Args:
        optimizers: Keras' package of optimizers.
        session: The session to report to.
        guard: Makes a function a hook.
        of: Returns an optimizer of Keras as one of torch.
    """

    @guard
    def add_norm(optimizer: Any, grads: Sequence[Any]) -> None:
        if optimizer.global_clipnorm:
            session.scalars.add(CLIP_NORM, nn.utils.get_total_norm([each for each in grads if each is not None]))

    @guard
    def scaled(result: Any, _: Any, loss: Any) -> None:
        session.scale_loss((result / loss).detach())

    @guard
    def skip(optimizer: Any) -> None:
        session.skip(of(optimizer.inner_optimizer))
        session.scalars.add(LOSS_SCALE, float(optimizer.dynamic_scale))

    base, scaling = optimizers.base_optimizer.BaseOptimizer, optimizers.loss_scale_optimizer.LossScaleOptimizer
    base._clip_gradients = preceded(base._clip_gradients, add_norm)
    scaling.scale_loss = followed(scaling.scale_loss, scaled)
    scaling._stateful_handle_non_finite_grads = preceded(scaling._stateful_handle_non_finite_grads, skip)
