"""The models in PyTorch, written for one device."""

from typing import cast

from torch import nn

from samestep.common.workload.models.describing import OWN_LOSS
from samestep.common.workload.models.own import OwnSpec
from samestep.common.workload.models.spec import ModelSpec
from samestep.torch_impl.models.cnn import BabyCNN
from samestep.torch_impl.models.losses import LOSSES, Loss
from samestep.torch_impl.models.mlp import Mlp
from samestep.torch_impl.models.own import build_own, own_loss, own_segments
from samestep.torch_impl.models.ranker import Ranker
from samestep.torch_impl.models.segmented import Segmented, SegmentFunction
from samestep.torch_impl.models.transformer import Transformer

MODELS = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker, "own": build_own}


def build_model(spec: ModelSpec) -> nn.Module:
    """The model of a spec, with weights that are yet to be set."""
    return MODELS[spec.name](spec)


def segment_functions(spec: ModelSpec, model: nn.Module) -> dict[str, SegmentFunction]:
    """The segments of a built model in order, named as in the spec; run one after the other they are its forward pass.

    Args:
        spec: The spec of the model.
        model: The model, or what a stage has left of it.
    """
    return own_segments(spec, model) if isinstance(spec, OwnSpec) else cast(Segmented, model).segments()


def summed_loss(spec: ModelSpec) -> Loss:
    """The loss of a model, summed over every target."""
    return own_loss(spec) if isinstance(spec, OwnSpec) and spec.loss == OWN_LOSS else LOSSES[spec.loss]
