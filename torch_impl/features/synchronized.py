"""Batch normalization over the whole batch, of which each rank has an equal shard.

On GPUs it is torch's own SyncBatchNorm, which runs only there (2.13) and only if layers count their batches. Otherwise it is
done by hand: the mean and then the variance are summed over the ranks in the forward pass, and two sums of gradients in the
backward pass. With two-byte dtypes all of this is computed in float32, and the result is rounded.
"""

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def synchronize(model: nn.Module, device: torch.device) -> nn.Module:
    """Makes the batch normalizations of a model use the statistics of all ranks.

    Args:
        model: The built model; its ranks have joined their group.
        device: The device of this process.

    Returns:
        The model; on GPUs some of its modules are replaced, under the same paths.
    """
    layers = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    if device.type == "cuda" and all(each.num_batches_tracked is not None for each in layers):
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for each in layers:
        each.forward = functools.partial(_normalize, each)  # pyrefly: ignore
    return model


def _normalize(layer: nn.modules.batchnorm._BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """Computes a batch normalization over the inputs [shard, channels, ...] of all ranks."""
    if not (layer.training or layer.running_mean is None):
        return type(layer).forward(layer, x)
    weight = torch.ones(x.shape[1], dtype=x.dtype, device=x.device) if layer.weight is None else layer.weight
    bias = torch.zeros_like(weight) if layer.bias is None else layer.bias
    wide = torch.promote_types(x.dtype, torch.float32)
    out, mean, variance = _Normalized.apply(x, weight.to(wide), bias.to(wide), layer.eps)
    if layer.training and layer.running_mean is not None:
        count = x.numel() // x.shape[1] * dist.get_world_size()
        _keep(layer, mean, variance * (count / (count - 1)))
    return out


class _Normalized(torch.autograd.Function):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over all ranks; it saves x, like the layer on one device."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ctx.dims, ctx.shape = [0, *range(2, x.ndim)], [1, -1, *[1] * (x.ndim - 2)]
        ctx.count = x.numel() // x.shape[1] * dist.get_world_size()
        mean = _summed(x.sum(ctx.dims, dtype=weight.dtype)) / ctx.count
        centred = x - mean.view(ctx.shape)
        variance = _summed(centred.square().sum(ctx.dims)) / ctx.count
        inverse = torch.rsqrt(variance + epsilon)
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.mark_non_differentiable(mean, variance)
        out = torch.addcmul(bias.view(ctx.shape), centred, (weight * inverse).view(ctx.shape))
        return out.to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        x, weight, mean, inverse = ctx.saved_tensors
        normal = (x - mean.view(ctx.shape)) * inverse.view(ctx.shape)
        # The strategy sums these together with all other gradients.
        own = (dy * normal).sum(ctx.dims), dy.sum(ctx.dims, dtype=weight.dtype)
        along, total = ((_summed(each) / ctx.count).view(ctx.shape) for each in own)
        return ((dy - total - normal * along) * (weight * inverse).view(ctx.shape)).to(x.dtype), *own, None


def _summed(x: torch.Tensor) -> torch.Tensor:
    total = x.clone()
    dist.all_reduce(total)
    return total


def _keep(layer: nn.modules.batchnorm._BatchNorm, mean: torch.Tensor, variance: torch.Tensor) -> None:
    """Updates the running statistics; without a momentum, they are the mean over all batches so far."""
    share = layer.momentum
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        share = 1 / float(layer.num_batches_tracked) if share is None else share
    layer.running_mean.lerp_(mean, share)  # pyrefly: ignore[missing-attribute]
    layer.running_var.lerp_(variance, share)  # pyrefly: ignore[missing-attribute]
