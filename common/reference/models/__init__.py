"""The models in NumPy, forward and backward by hand."""

from common.reference.models.cnn import BabyCNN
from common.reference.models.layers import Layer
from common.reference.models.mlp import Mlp
from common.reference.models.ranker import Ranker
from common.reference.models.transformer import Transformer
from common.workload.models.spec import ModelSpec

MODELS = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker}


def build_model(spec: ModelSpec) -> Layer:
    """The model of a spec; its parameters are handed to every call, by neutral name."""
    return MODELS[spec.name](spec)
