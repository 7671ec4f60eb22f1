"""The features of a model as models, programs and descriptions meet them: they are put in here, and nobody else names one."""

from collections.abc import Collection, Iterator

from torch import nn

from samestep.common.features import Features
from samestep.torch_impl.features import batch_norm, dropout
from samestep.torch_impl.features.batch_norm import convolution, freeze, linear, norms_of
from samestep.torch_impl.features.dropout import dropout as behind
from samestep.torch_impl.features.dropout import held_still, prepare

__all__ = [
    "behind",
    "convolution",
    "freeze",
    "held_still",
    "in_parts",
    "linear",
    "norms_of",
    "prepare",
    "switch_layers",
]


def switch_layers(model: nn.Module, features: Features, running: Collection[str] = ()) -> None:
    """Switches layers of a built model off whose effect depends on how it is split.

    Args:
        model: The model, or a stage of it.
        features: The request.
        running: Other buffers that training moves, by neutral name.
    """
    dropout.switch(model, features)
    batch_norm.switch(model, features, running)


def in_parts(model: nn.Module) -> Iterator[dropout.Dropout]:
    """Yields the layers that have to be told which part of an activation they take."""
    return (each for each in model.modules() if isinstance(each, dropout.Dropout))
