"""The models in PyTorch, written for one device."""

from torch import nn

from common.workload.models.spec import ModelSpec
from torch_impl.models.cnn import BabyCNN
from torch_impl.models.mlp import Mlp
from torch_impl.models.ranker import Ranker
from torch_impl.models.transformer import Transformer

MODELS = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker}


def build_model(spec: ModelSpec) -> nn.Module:
    """The model of a spec, with weights that are yet to be set."""
    return MODELS[spec.name](spec)
