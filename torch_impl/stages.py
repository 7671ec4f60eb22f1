"""Parts of a model along its cuts, as modules that keep every neutral name."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import nn

from common.config import RunConfig
from common.workload.models.spec import Cut, init
from common.workload.models.spec import stages as group
from common.workload.table import Workload
from torch_impl import weights
from torch_impl.models import build_model
from torch_impl.models.pieces import InPieces, chained


class _GradientLaidOut(torch.autograd.Function):
    """The identity, whose gradient is contiguous: gloo sends nothing else, and a permutation's gradient is not."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.contiguous()


class Stage(nn.Module):
    """Some consecutive cuts of a model; the others' modules are gone, those left are where they always were.

    Attributes:
        model: What is left of the model: its `named_weights` are the stage's.
    """

    def __init__(self, model: nn.Module, cuts: Sequence[Cut], laid_out: bool = True) -> None:
        """Takes the other cuts' modules out of the model.

        Args:
            model: Whole.
            cuts: Those of the stage.
            laid_out: Whether activations and gradients leave the stage contiguous, as gloo has to have them.
        """
        super().__init__()
        for cut in cast(InPieces, model).cuts():
            if cut not in (names := [each.name for each in cuts]):
                model.set_submodule(cut.replace("/", "."), nn.Identity())
        self.model = model
        self._names = names
        self._laid_out = laid_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From the stage's input to the next one's."""
        pieces = cast(InPieces, self.model).cuts()
        x = _GradientLaidOut.apply(x) if self._laid_out and x.requires_grad else x
        x = chained([pieces[name] for name in self._names], x)
        return x.contiguous() if self._laid_out else x


def stage_of(
    workload: Workload, config: RunConfig, device: torch.device, cuts: Sequence[Cut], laid_out: bool = True
) -> Stage:
    """Some cuts of the workload's model, with their initial weights in the run's dtype; see `Stage`."""
    with torch.device("meta"):  # the whole model may not fit
        stage = Stage(build_model(workload.model), cuts, laid_out)
    stage.to(getattr(torch, config.dtype)).to_empty(device=device)
    weights.load(stage.model, init(workload.model, config.seed))
    return stage


def build_stages(
    workload: Workload, config: RunConfig, device: torch.device, holders: Sequence[int], rank: int
) -> dict[int, Stage]:
    """The stages that a rank holds, by index.

    Args:
        workload: What is trained.
        config: A checked configuration.
        device: Of this process.
        holders: The rank that holds each stage.
        rank: This one's.
    """
    grouped = group(workload.model.cuts(), len(holders))
    own = [index for index, holder in enumerate(holders) if holder == rank]
    return {index: stage_of(workload, config, device, grouped[index]) for index in own}


def boundaries(workload: Workload, num_stages: int, rows: int) -> tuple[torch.Size, ...]:
    """The shape of what each stage hands on, for so many rows; found without computing anything.

    Args:
        workload: What is trained.
        num_stages: Into how many stages the model is cut.
        rows: The number of examples.
    """
    spec = workload.model.inputs()
    with torch.device("meta"):
        pieces = cast(InPieces, build_model(workload.model)).cuts()
        x = torch.empty(rows, *spec.shape, dtype=torch.float32 if spec.ids is None else torch.int64)
        shapes = []
        for cuts in group(workload.model.cuts(), num_stages):
            x = chained([pieces[cut.name] for cut in cuts], x)
            shapes.append(x.shape)
    return tuple(shapes)


def named_weights(stages: Mapping[int, Stage]) -> dict[str, weights.Weight]:
    """The parameters of several stages by neutral name."""
    return {name: weight for stage in stages.values() for name, weight in weights.named_weights(stage.model).items()}
