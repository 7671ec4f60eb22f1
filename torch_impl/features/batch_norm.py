"""Layers with batch normalization; it is torch's own, with the epsilon and momentum of all three mirrors.

The normalization is a part of the layer before it, so both are gathered together if parameters are sharded.
"""

import functools
from collections.abc import Collection

import torch
from torch import nn
from torch.func import functional_call

from samestep.common.features import Features
from samestep.common.features.batch_norm.statistics import EPSILON, MOMENTUM

NEUTRAL = {nn.modules.batchnorm._BatchNorm: {"weight": ("scale", (0,)), "bias": ("bias", (0,))}}
"""Type of module -> its parameters; see `weights`."""
BUFFER_ROLES = ("running_mean", "running_var")
"""The roles of the buffers of a normalization, which are torch's names for them."""


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """torch's batch normalization for any number of dims, without the counter of batches, which a momentum makes unnecessary."""

    def __init__(self, channels: int, epsilon: float, momentum: float) -> None:
        super().__init__(channels, epsilon, momentum)
        self.num_batches_tracked = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes [batch, channels, ...]; statistics have the dtype of the running statistics, even if that has two bytes."""
        # torch 2.13 requires this dtype of the scale as well, which `fully_shard` may have gathered in two bytes.
        scale, bias = (each.to(self.running_mean.dtype) for each in (self.weight, self.bias))  # pyrefly: ignore[missing-attribute]
        kept = self.running_mean, self.running_var
        return nn.functional.batch_norm(input, *kept, scale, bias, self.training, self.momentum, self.eps)  # pyrefly: ignore[bad-argument-type]


class NormalizedLinear(nn.Linear):
    """A linear layer without a bias, followed by batch normalization."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__(fan_in, fan_out, bias=False)
        self.norm = BatchNorm(fan_out, EPSILON, MOMENTUM)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Computes the normalized outputs, [batch, in] -> [batch, out]."""
        return self.norm(super().forward(input))


class NormalizedConvolution(nn.Conv2d):
    """A 3x3 convolution without a bias, followed by batch normalization."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__(fan_in, fan_out, kernel_size=3, padding=1, bias=False)
        self.norm = BatchNorm(fan_out, EPSILON, MOMENTUM)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Computes the normalized outputs, [batch, in, height, width] -> [batch, out, height, width]."""
        # With channels last, torch 2.13 sums a channel sequentially, which loses 2e-6 of the loss in float32.
        return self.norm(super().forward(input).contiguous())


def linear(norm: str, fan_in: int, fan_out: int) -> nn.Module:
    """Builds a hidden linear layer.

    Args:
        norm: A name in `NORMS`.
        fan_in: Input features.
        fan_out: Output features.
    """
    return NormalizedLinear(fan_in, fan_out) if norm == "batch" else nn.Linear(fan_in, fan_out)


def convolution(norm: str, fan_in: int, fan_out: int) -> nn.Module:
    """Builds a 3x3 convolution with same padding.

    Args:
        norm: A name in `NORMS`.
        fan_in: Input channels.
        fan_out: Output channels.
    """
    if norm == "batch":
        return NormalizedConvolution(fan_in, fan_out)
    return nn.Conv2d(fan_in, fan_out, kernel_size=3, padding=1)


def norms_of(model: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    """Returns the layers that normalize over the batch, by path."""
    return {path: each for path, each in model.named_modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)}


def switch(model: nn.Module, features: Features, running: Collection[str] = ()) -> None:
    """Freezes the running statistics of a model's layers, if that is asked for.

    Args:
        model: The model, or a stage of it.
        features: The requested features.
        running: Other buffers that training changes, by neutral name.
    """
    if features.batch_norm == "frozen":
        freeze(model, running)


def freeze(model: nn.Module, running: Collection[str] = ()) -> None:
    """Makes batch normalizations, and the modules of other running buffers, compute as in evaluation.

    Args:
        model: The model, or a stage of it.
        running: The buffers, by neutral name.
    """
    owners = {name.rpartition("/")[0].replace("/", ".") for name in running}
    for each in [each for path, each in model.named_modules() if path in owners]:
        each.train = functools.partial(_train_below, each)  # type: ignore[method-assign]
        each.training = False
    for each in norms_of(model).values():
        each.register_forward_pre_hook(_evaluate)


def _train_below(module: nn.Module, mode: bool = True) -> nn.Module:
    """Sets the mode of the modules inside a module, which itself stays in evaluation mode."""
    type(module).train(module, mode)
    module.training = False
    return module


def _evaluate(module: nn.Module, inputs: object) -> None:
    module.eval()


def widen_scales(model: nn.Module) -> None:
    """Casts scales that were gathered in two bytes to the dtype of the statistics (torch 2.13 requires that).

    Our own `BatchNorm` does so anyway.
    """
    for norm in list(norms_of(model).values()):
        if not isinstance(norm, BatchNorm):
            _widen_scale(norm)


def _widen_scale(norm: nn.modules.batchnorm._BatchNorm) -> None:
    kind = type(norm)

    def forward(self: nn.modules.batchnorm._BatchNorm, input: torch.Tensor) -> torch.Tensor:
        wide = (
            {} if self.running_mean is None else {n: p.to(self.running_mean.dtype) for n, p in self.named_parameters()}
        )
        if all(parameter.dtype == wide[name].dtype for name, parameter in self.named_parameters() if wide):
            return kind.forward(self, input)
        return functional_call(self, wide, input)

    norm.__class__ = type(kind.__name__, (kind,), {"forward": forward})
