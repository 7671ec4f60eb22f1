"""Finds out what a user clips before the optimizer steps, since torch's functions for that leave no trace in its settings."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import nn

from samestep.common.porting.model_trace import CLIP_EPSILON, Amendments
from samestep.torch_impl.describing.configured import HyperParameters
from samestep.torch_impl.weights import Weight

_ADDED = 1e-6
"""The number that `clip_grad_norm_` adds to the norm by which it divides (torch 2.13)."""
_Function = Callable[..., Any]


class Clips:
    """A context that watches `clip_grad_norm_` and `clip_grad_value_` in files that import them within it, under any name."""

    def __init__(self, amendments: Amendments) -> None:
        """Starts with no calls seen.

        Args:
            amendments: The accepted differences, which may say to add nothing to the norm, like Keras.
        """
        self._is_exact = any(CLIP_EPSILON in each for each in amendments.optimizer.values())
        self._seen: dict[int, dict[str, float]] = {}
        self._plain: dict[str, _Function] = {}

    def __enter__(self) -> Self:
        for name, watch in (("clip_grad_norm_", self._norm), ("clip_grad_value_", self._value)):
            self._plain[name] = plain = getattr(nn.utils, name)
            self._put(name, functools.wraps(plain)(functools.partial(watch, plain)))
        return self

    def __exit__(self, *_: object) -> None:
        for name, plain in self._plain.items():
            self._put(name, plain)

    def beside(self, configured: HyperParameters, named: Mapping[str, Weight]) -> HyperParameters:
        """Returns the settings of an optimizer together with those of the clipping, under the names of Keras' optimizers.

        Args:
            configured: The settings for each parameter, by neutral name.
            named: The parameters by neutral name.
        """
        return {name: {**held, **self._seen.get(id(named[name].parameter), {})} for name, held in configured.items()}

    def _put(self, name: str, function: _Function) -> None:
        setattr(nn.utils, name, function)
        setattr(nn.utils.clip_grad, name, function)

    def _norm(
        self, plain: _Function, parameters: Any, max_norm: float, norm_type: float = 2.0, *more: Any, **by: Any
    ) -> Any:
        listed = _listed(parameters)
        gradients = [each.grad for each in listed if each.grad is not None]
        seen = {"global_clipnorm" if len(gradients) > 1 else "clipnorm": float(max_norm)}
        seen |= {} if self._is_exact else {CLIP_EPSILON: _ADDED}
        seen |= {} if norm_type == 2 else {"norm_type": float(norm_type)}
        self._saw(listed, seen)
        bound = float(max_norm)
        if self._is_exact and gradients and (norm := float(nn.utils.get_total_norm(gradients, norm_type))):
            bound *= 1 + _ADDED / norm
        return plain(listed, bound, norm_type, *more, **by)

    def _value(self, plain: _Function, parameters: Any, clip_value: float, *more: Any, **by: Any) -> Any:
        listed = _listed(parameters)
        self._saw(listed, {"clipvalue": float(clip_value)})
        return plain(listed, clip_value, *more, **by)

    def _saw(self, parameters: list[torch.Tensor], settings: dict[str, float]) -> None:
        for each in parameters:
            self._seen[id(each)] = self._seen.get(id(each), {}) | settings


def _listed(parameters: Any) -> list[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
