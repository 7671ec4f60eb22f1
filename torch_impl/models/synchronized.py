"""Batch normalisation over the whole batch, of which each rank has an equal shard.

On GPUs torch's own SyncBatchNorm, which runs nowhere else (2.13); on CPUs the same, by hand: the mean and then the variance
are summed over the ranks in the forward pass, and so are their gradients in the backward pass.
"""

import functools

import torch
import torch.distributed as dist
from torch import nn


def synchronize(model: nn.Module, device: torch.device) -> nn.Module:
    """Has the batch normalisations of a model take the statistics of all ranks.

    Args:
        model: Built, its group of ranks joined.
        device: Of this process.

    Returns:
        The model; on GPUs with other modules in it, under the same paths.
    """
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for each in model.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm):
            each.forward = functools.partial(_normalize, each)  # pyrefly: ignore
    return model


class _SumOverRanks(torch.autograd.Function):
    """What every rank takes of a sum comes back as the gradient of each summand."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return _summed(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        return _summed(gradient)


def _summed(x: torch.Tensor) -> torch.Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total)
    return total


def _normalize(layer: nn.modules.batchnorm._BatchNorm, x: torch.Tensor) -> torch.Tensor:
    """The forward pass of a batch normalisation, over [shard, channels, ...] of every rank."""
    if not (layer.training or layer.running_mean is None):
        return type(layer).forward(layer, x)
    dims, shape = [0, *range(2, x.ndim)], [1, -1, *[1] * (x.ndim - 2)]
    count = x.numel() // x.shape[1] * dist.get_world_size()
    mean = _SumOverRanks.apply(x.sum(dims)) / count
    centred = x - mean.view(shape)
    variance = _SumOverRanks.apply(centred.square().sum(dims)) / count
    if layer.training and layer.running_mean is not None:
        _keep(layer, mean.detach(), variance.detach() * (count / (count - 1)))
    out = centred * torch.rsqrt(variance + layer.eps).view(shape)
    return out if layer.weight is None else out * layer.weight.view(shape) + layer.bias.view(shape)


def _keep(layer: nn.modules.batchnorm._BatchNorm, mean: torch.Tensor, variance: torch.Tensor) -> None:
    """Moves the running statistics; without a momentum they are the mean of all so far."""
    layer.num_batches_tracked.add_(1)
    share = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean, share)
    layer.running_var.lerp_(variance, share)
