"""The models in TensorFlow, written for one device."""

import tensorflow as tf

from common.workload.models.spec import ModelSpec
from tf_impl.models.cnn import BabyCNN
from tf_impl.models.layers import VariableFactory
from tf_impl.models.mlp import Mlp
from tf_impl.models.ranker import Ranker
from tf_impl.models.transformer import Transformer

MODELS = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker}


def build_model(spec: ModelSpec, variable: VariableFactory) -> tf.Module:
    """The model of a spec; the factory makes its variables by neutral name."""
    return MODELS[spec.name](spec, variable)
