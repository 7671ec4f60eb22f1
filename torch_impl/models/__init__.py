"""The models in PyTorch, written for one device."""

from torch import nn

from samestep.common.workload.models.spec import ModelSpec
from samestep.torch_impl.models.cnn import BabyCNN
from samestep.torch_impl.models.mlp import Mlp
from samestep.torch_impl.models.ranker import Ranker
from samestep.torch_impl.models.transformer import Transformer

MODELS = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker}


def build_model(spec: ModelSpec) -> nn.Module:
    """The model of a spec, with weights that are yet to be set."""
    return MODELS[spec.name](spec)
