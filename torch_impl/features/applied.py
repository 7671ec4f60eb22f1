"""Applies the features of a model for models, programs and descriptions; no other module names individual features."""

from collections.abc import Collection, Iterator

import torch
from torch import nn

from samestep.common.features import Features
from samestep.common.strategy import Run
from samestep.torch_impl.features import batch_norm, dropout
from samestep.torch_impl.features.batch_norm import (
    BUFFER_ROLES,
    NEUTRAL,
    convolution,
    freeze,
    linear,
    norms_of,
    widen_scales,
)
from samestep.torch_impl.features.dropout import dropout as behind
from samestep.torch_impl.features.dropout import dropped_by, held_still, prepare
from samestep.torch_impl.features.experts import with_balance
from samestep.torch_impl.features.synchronized import synchronize

__all__ = [
    "BUFFER_ROLES",
    "NEUTRAL",
    "behind",
    "convolution",
    "dropped_by",
    "exchanging",
    "freeze",
    "held_still",
    "in_parts",
    "layers_of",
    "linear",
    "norms_of",
    "prepare",
    "switch_layers",
    "widen_scales",
    "with_balance",
]


def switch_layers(model: nn.Module, features: Features, running: Collection[str] = ()) -> None:
    """Switches off the layers of a built model whose effect depends on how the batch is split.

    Args:
        model: The model, or a stage of it.
        features: The requested features.
        running: Other buffers that training changes, by neutral name.
    """
    dropout.switch(model, features)
    batch_norm.switch(model, features, running)


def exchanging(run: Run, model: nn.Module, device: torch.device) -> nn.Module:
    """Makes the layers of a model exchange sync statistics within a pass, if the run asks for it.

    Args:
        run: The run.
        model: The built model; its ranks have joined their group.
        device: The device of this process.

    Returns:
        The model; on GPUs some of its modules are replaced, under the same paths.
    """
    return synchronize(model, device) if run.batch_norm == "sync" and run.mesh.replicas > 1 else model


def layers_of(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Returns, for each feature that depends on how a batch is split, the layers of a user model that have it."""
    return {"batch_norm": tuple(norms_of(model))}


def in_parts(model: nn.Module) -> Iterator[dropout.Dropout]:
    """Yields the layers that must know which part of an activation they take."""
    return (each for each in model.modules() if isinstance(each, dropout.Dropout))
