"""The models in TensorFlow, written for one device: plain classes, since a strategy keeps their variables by name."""

from samestep.common.workload.models.spec import ModelSpec
from samestep.tf_impl.models.cnn import BabyCNN
from samestep.tf_impl.models.layers import VariableFactory
from samestep.tf_impl.models.mlp import Mlp
from samestep.tf_impl.models.ranker import Ranker
from samestep.tf_impl.models.transformer import Transformer

MODELS = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker}


def build_model(spec: ModelSpec, variable: VariableFactory) -> Mlp | BabyCNN | Transformer | Ranker:
    """The model of a spec; the factory makes its variables by neutral name.

    Args:
        spec: The spec of the model.
        variable: Makes the variables by neutral name.
    """
    return MODELS[spec.name](spec, variable)
