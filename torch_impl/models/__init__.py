"""The models in PyTorch, written for one device."""

from collections.abc import Callable
from typing import cast

from torch import nn

from samestep.common.workload.declaration import RETURNED
from samestep.common.workload.models.loss_check import USER_LOSS
from samestep.common.workload.models.spec import IGNORED, ModelSpec
from samestep.torch_impl.models.cnn import BabyCNN
from samestep.torch_impl.models.losses import LOSSES, Loss
from samestep.torch_impl.models.mlp import Mlp
from samestep.torch_impl.models.ranker import Ranker
from samestep.torch_impl.models.segmented import Segmented, SegmentFunction
from samestep.torch_impl.models.transformer import Transformer
from samestep.torch_impl.models.user_loss import user_loss
from samestep.torch_impl.models.user_model import build_user_model, user_segments
from samestep.torch_impl.step_context import StepContext

MODELS = dict[str, Callable[..., nn.Module]](
    mlp=Mlp, cnn=BabyCNN, transformer=Transformer, ranker=Ranker, own=build_user_model
)


def build_model(spec: ModelSpec, context: StepContext) -> nn.Module:
    """Builds the model of a spec; its weights are not set yet.

    Args:
        spec: The spec.
        context: What the layers read about the current micro-batch.
    """
    return MODELS[spec.name](spec, context)


def segment_functions(spec: ModelSpec, model: nn.Module) -> dict[str, SegmentFunction]:
    """Returns the segments of a built model in order, by name; run one after the other, they are its forward pass.

    Args:
        spec: The spec of the model.
        model: The model, or the part that a stage has left of it.
    """
    return user_segments(spec, model) if not spec.facts.is_built_here else cast(Segmented, model).segments()


def summed_loss(spec: ModelSpec) -> Loss:
    """Returns the loss of a model, summed over every target."""
    if spec.loss in (USER_LOSS, RETURNED):
        return user_loss(spec)
    loss = LOSSES[spec.loss]
    if spec.facts.ignores and not spec.facts.is_built_here:  # the user's data may have any negative number there
        return lambda outputs, targets: loss(outputs, targets.clamp(min=IGNORED))
    return loss
