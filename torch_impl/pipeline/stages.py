"""Parts of a model along its depth, as modules in which every parameter keeps its neutral name."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import nn

from samestep.common.strategy import Run
from samestep.common.workload.initial import InitialWeights
from samestep.common.workload.models.spec import Segment
from samestep.common.workload.pipeline import group_segments
from samestep.torch_impl import weights
from samestep.torch_impl.models import build_model
from samestep.torch_impl.models.segmented import Segmented, run_segments


class _ContiguousGradient(torch.autograd.Function):
    """The identity, whose gradient is contiguous: gloo sends nothing else, and a permutation's gradient is not."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.contiguous()


class Stage(nn.Module):
    """Consecutive segments of a model. The other segments' modules are removed; those left keep their paths.

    Attributes:
        model: What is left of the model: its `named_weights` are the stage's.
    """

    def __init__(self, model: nn.Module, segments: Sequence[Segment], contiguous: bool = True) -> None:
        """Removes the other segments' modules from the model.

        Args:
            model: The whole model.
            segments: The segments of the stage.
            contiguous: Whether activations and gradients leave the stage contiguous, as gloo requires.
        """
        super().__init__()
        self._names = [segment.name for segment in segments]
        for name in cast(Segmented, model).segments():
            if name not in self._names:
                model.set_submodule(name.replace("/", "."), nn.Identity())
        self.model = model
        self._contiguous = contiguous

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the next stage's input from this one's."""
        functions = cast(Segmented, self.model).segments()
        x = _ContiguousGradient.apply(x) if self._contiguous and x.requires_grad else x
        x = run_segments([functions[name] for name in self._names], x)
        return x.contiguous() if self._contiguous else x


def build_stage(run: Run, device: torch.device, segments: Sequence[Segment], contiguous: bool = True) -> Stage:
    """Builds a stage with its initial weights, in the run's dtype.

    Args:
        run: What is trained.
        device: The device of this process.
        segments: The segments of the stage.
        contiguous: As in `Stage`.
    """
    with torch.device("meta"):  # the whole model may not fit
        stage = Stage(build_model(run.workload.model), segments, contiguous)
    stage.to(getattr(torch, run.dtype))
    weights.materialize(stage.model, device, InitialWeights(run.workload.model, run.seed))
    return stage


def build_stages(run: Run, device: torch.device, stage_ranks: Sequence[int], rank: int) -> dict[int, Stage]:
    """Builds the stages that a rank holds, by index.

    Args:
        run: What is trained.
        device: The device of this process.
        stage_ranks: The rank that holds each stage.
        rank: This one's.
    """
    grouped = group_segments(run.workload.model.segments(), len(stage_ranks))
    own = [index for index, holder in enumerate(stage_ranks) if holder == rank]
    return {index: build_stage(run, device, grouped[index]) for index in own}


def output_shapes(run: Run, num_stages: int, rows: int) -> tuple[torch.Size, ...]:
    """Finds the shape of each stage's output without computing anything.

    Args:
        run: What is trained.
        num_stages: The number of stages into which the model is split.
        rows: The number of examples.
    """
    model, shapes = run.workload.model, []
    spec = model.inputs()
    with torch.device("meta"):
        functions = cast(Segmented, build_model(model)).segments()
        x = torch.empty(rows, *spec.shape, dtype=torch.float32 if spec.ids is None else torch.int64)
        for segments in group_segments(model.segments(), num_stages):
            x = run_segments([functions[segment.name] for segment in segments], x)
            shapes.append(x.shape)
    return tuple(shapes)
