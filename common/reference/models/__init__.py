"""The models in NumPy, forward and backward by hand."""

from samestep.common.reference.models.cnn import BabyCNN
from samestep.common.reference.models.layers import Layer
from samestep.common.reference.models.mlp import Mlp
from samestep.common.reference.models.ranker import Ranker
from samestep.common.reference.models.transformer import Transformer
from samestep.common.workload.models.spec import ModelSpec

MODELS = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker}


def build_model(spec: ModelSpec) -> Layer:
    """Builds the model of a spec; its parameters are handed to every call, by neutral name."""
    return MODELS[spec.name](spec)
