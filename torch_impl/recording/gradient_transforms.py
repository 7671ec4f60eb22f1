"""Where scripts scale losses and clip gradients on PyTorch: the functions of torch, and the optimizers of Keras."""

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import nn

from samestep.common.steps.gradient_transforms import CLIP_CALLS, CLIP_NORM, CLIP_PART, LOSS_SCALE
from samestep.torch_impl.recording.pieces import is_dtensor
from samestep.torch_impl.recording.places import share_of_norm
from samestep.torch_impl.recording.session import Session


class Guard(Protocol):
    """Makes a hook of a function, which ends no script."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the hook."""


def follow_transforms(session: Session, guard: Guard) -> None:
    """Follows torch's functions that clip, and its gradient scaler.

    Args:
        session: Is told what happens.
        guard: Makes the hooks.
    """
    for kind in ("norm", "value"):
        name = f"clip_grad_{kind}_"
        clip = _clipped(getattr(nn.utils, name), kind, session, guard)
        setattr(nn.utils, name, clip)
        setattr(nn.utils.clip_grad, name, clip)
    scaler = torch.amp.GradScaler
    scaler.scale, scaler.step = _scaled(scaler.scale, session, guard), _scaled_step(scaler.step, session, guard)


_BOUNDS = ("max_norm", "clip_value")


def _clipped(original: Callable[..., Any], kind: str, session: Session, guard: Guard) -> Callable[..., Any]:
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


def _scaled(original: Callable[..., Any], session: Session, guard: Guard) -> Callable[..., Any]:
    scaled = guard(session.scale_loss)

    @functools.wraps(original)
    def scale(scaler: Any, outputs: Any) -> Any:
        result = original(scaler, outputs)
        if scaler._enabled and scaler._scale is not None:
            scaled(scaler._scale)
        return result

    return scale


def _scaled_step(original: Callable[..., Any], session: Session, guard: Guard) -> Callable[..., Any]:
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
    optimizers: ModuleType, session: Session, guard: Guard, of: Callable[[Any], torch.optim.Optimizer]
) -> None:
    """Follows optimizers of Keras that clip, and the one that scales the loss of another.

    Args:
        optimizers: Keras' package of them.
        session: Is told what happens.
        guard: Makes the hooks.
        of: Returns an optimizer of Keras as one of torch.
    """
    base, scaling = optimizers.base_optimizer.BaseOptimizer, optimizers.loss_scale_optimizer.LossScaleOptimizer
    scaled, skip, add = guard(session.scale_loss), guard(session.skip), guard(session.scalars.add)
    clip_all, scale_loss, skipped = base._clip_gradients, scaling.scale_loss, scaling._stateful_handle_non_finite_grads

    @guard
    def add_norm(gradients: Sequence[Any]) -> None:
        session.scalars.add(CLIP_NORM, nn.utils.get_total_norm([each for each in gradients if each is not None]))

    @functools.wraps(clip_all)
    def clip(optimizer: Any, grads: Any) -> Any:
        if optimizer.global_clipnorm:
            add_norm(grads)
        return clip_all(optimizer, grads)

    @functools.wraps(scale_loss)
    def scale(optimizer: Any, loss: Any) -> Any:
        result = scale_loss(optimizer, loss)
        scaled((result / loss).detach())
        return result

    @functools.wraps(skipped)
    def handle(optimizer: Any) -> None:
        skip(of(optimizer.inner_optimizer))
        add(LOSS_SCALE, float(optimizer.dynamic_scale))
        skipped(optimizer)

    base._clip_gradients = clip
    scaling.scale_loss, scaling._stateful_handle_non_finite_grads = scale, handle
