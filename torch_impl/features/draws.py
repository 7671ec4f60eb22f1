"""Replaces each random draw in a user's forward pass by its mean, which depends on neither the seed nor the shard.

Dropout then returns its input. It replaces the functions of torch and the methods of its tensors that draw; draws in NumPy or
inside an operation such as an LSTM are not replaced.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from samestep.common.workload.draws import Still


def _filled(value: float) -> Still:
    def still(plain: Callable[..., Any], *args: Any, **named: Any) -> torch.Tensor:
        with torch.no_grad():
            return plain(*args, **named).fill_(value)

    return still


def _mean(mean: Callable[..., Any], first: int = 1) -> Still:
    """Returns a replacement that fills the result with a mean computed from all arguments after the first `first` ones."""

    def still(plain: Callable[..., Any], *args: Any, **named: Any) -> torch.Tensor:
        named.pop("generator", None)
        value, made = mean(*args[first:], **named), plain(*args, **named)
        with torch.no_grad():
            return made.copy_(value) if isinstance(value, torch.Tensor) else made.fill_(value)

    return still


def _passed_on(plain: Callable[..., Any], input: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    return input


def _kept(
    plain: Callable[..., Any], input: torch.Tensor, *args: Any, **named: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return input, torch.ones_like(input, dtype=torch.bool)


def _evaluated(plain: Callable[..., Any], input: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Returns the leaky ReLU whose slope is the mean of the slopes that would be drawn."""
    bounds = {**dict(zip(("lower", "upper"), args, strict=False)), **named}
    return functional.leaky_relu(input, (bounds.get("lower", 1 / 8) + bounds.get("upper", 1 / 3)) / 2)


def _attending(
    plain: Callable[..., Any],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    *args: Any,
    **named: Any,
) -> torch.Tensor:
    return plain(query, key, value, attn_mask, 0.0, *args, **named)


def _in_order(plain: Callable[..., Any], number: int, *args: Any, **named: Any) -> torch.Tensor:
    made = plain(number, *args, **named)
    return made.copy_(torch.arange(number))


def _likeliest(
    plain: Callable[..., Any], input: torch.Tensor, num_samples: int, *args: Any, **named: Any
) -> torch.Tensor:
    order = input.argsort(-1, descending=True)
    return order[..., torch.arange(num_samples) % order.shape[-1]]


def _middle(*bounds: Any, **named: Any) -> int:
    whole = [each for each in bounds if isinstance(each, int)]
    low, high = named.get("low", whole[0] if len(whole) > 1 else 0), named.get("high", whole[-1] if whole else 1)
    return (low + high - 1) // 2


def _first(mean: Any = 0.0, *args: Any, **named: Any) -> Any:
    return mean


def _chance(p: Any = 0.5, **named: Any) -> Any:
    return p


def _of_uniform(low: float = 0.0, high: float = 1.0, **named: float) -> float:
    return (named.get("from", low) + named.get("to", high)) / 2


def _own_chance(input: torch.Tensor, p: float | None = None, **named: Any) -> Any:
    return input if p is None else p


STILL: Mapping[tuple[Any, str], Still] = {
    (functional, "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout"): _passed_on,
    (torch, "dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_"): _passed_on,
    (torch, "feature_alpha_dropout feature_alpha_dropout_"): _passed_on,
    (torch, "native_dropout"): _kept,
    (functional, "scaled_dot_product_attention"): _attending,
    (functional, "rrelu rrelu_"): _evaluated,
    (torch, "rrelu"): _evaluated,
    (torch, "randn randn_like"): _filled(0.0),
    (torch, "rand rand_like"): _filled(0.5),
    (torch, "randint"): _mean(_middle, 0),
    (torch, "randint_like"): _mean(_middle),
    (torch, "randperm"): _in_order,
    (torch, "normal"): _mean(_first, 0),
    (torch, "bernoulli"): _mean(_own_chance, 0),
    (torch, "poisson _standard_gamma"): _mean(_first, 0),
    (torch, "multinomial"): _likeliest,
    (torch.Tensor, "multinomial"): _likeliest,
    (torch.Tensor, "bernoulli"): _mean(_own_chance, 0),
    (torch.Tensor, "normal_ cauchy_"): _mean(_first),
    (torch.Tensor, "uniform_"): _mean(_of_uniform),
    (torch.Tensor, "bernoulli_"): _mean(_chance),
    (torch.Tensor, "exponential_"): _mean(lambda lambd=1.0: 1 / lambd),
    (torch.Tensor, "geometric_"): _mean(lambda p: 1 / p),
    (torch.Tensor, "log_normal_"): _mean(lambda mean=1.0, std=2.0: math.exp(mean + std * std / 2)),
    (torch.Tensor, "random_"): _mean(lambda *bounds, **named: _middle(*bounds)),
}
"""Module or class and the names of its drawing functions -> the replacement that returns a mean."""
