"""The models in NumPy, with forward and backward passes written by hand."""

from collections.abc import Callable, Mapping

from samestep.common.reference.models.cnn import BabyCNN
from samestep.common.reference.models.layers import Layer
from samestep.common.reference.models.mlp import Mlp
from samestep.common.reference.models.ranker import Ranker
from samestep.common.reference.models.transformer import Transformer
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.spec import ModelSpec

MODELS: Mapping[str, Callable[..., Layer]] = {"mlp": Mlp, "cnn": BabyCNN, "transformer": Transformer, "ranker": Ranker}


def build_model(spec: ModelSpec, context: StepContext) -> Layer:
    """Builds the model of a spec. Its parameters are passed to every call, by neutral name.

    Args:
        spec: The spec.
        context: What its layers need to know about the current micro-batch.
    """
    return MODELS[spec.name](spec, context)
