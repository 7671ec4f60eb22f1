"""Clipping: after the exchange, the gradient of the whole batch is scaled down in place to at most a given norm."""

from collections.abc import Callable, Sequence

import torch

from samestep.common.techniques import Techniques
from samestep.torch_impl.sharded import local_part


def transform(
    gradients: list[torch.Tensor], global_norm: Callable[[list[torch.Tensor]], torch.Tensor], techniques: Techniques
) -> None:
    """Clips the gradient of the whole batch if a run asks for it.

    Args:
        gradients: The gradients of this process, after the exchange.
        global_norm: Computes the norm of the whole gradient from these.
        techniques: The techniques of the run.
    """
    if techniques.clip_norm is not None:
        clip(gradients, global_norm(gradients), techniques.clip_norm)


def clip(gradients: Sequence[torch.Tensor], norm: torch.Tensor, bound: float) -> None:
    """Scales gradients down in place, so the whole gradient has at most a given norm.

    Args:
        gradients: The gradients of this process; if they are sharded, this process's parts are scaled.
        norm: The norm of the whole gradient.
        bound: The largest norm allowed.
    """
    torch._foreach_mul_([local_part(gradient) for gradient in gradients], (bound / norm).clamp(max=1.0))
