"""Stages of consecutive layers of a model, as modules in which every parameter keeps its neutral name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from samestep.common.features.used import initial_buffers
from samestep.common.strategy import Run
from samestep.common.workload.initial import initial_weights
from samestep.common.workload.models.spec import ModelSpec, Segment, shared_parameters
from samestep.common.workload.pipeline_schedule import group_segments
from samestep.torch_impl import weights
from samestep.torch_impl.building import build_switched
from samestep.torch_impl.models import build_model, segment_functions
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.models.segmented import Handed, remove, run_segments, tensors_of
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import adapt, restructure


class _Handed(torch.autograd.Function):
    """The identity at a stage boundary, with a contiguous gradient; gloo sends only contiguous tensors.

    The gradient of a permutation is not contiguous. The result is not a view, because torch's schedules could not detach
    a view from the graph (2.13).
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.contiguous()


class _InGraphOf(torch.autograd.Function):
    """The identity of a tensor that needs no gradient, as part of the graph of another tensor.

    Each tensor that a stage receives gets a gradient. So each tensor that a stage hands on, even a mask, must accept one.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[None, None]:
        return None, None


class Stage(nn.Module):
    """Consecutive segments of a model. The modules of other segments are removed; the remaining ones keep their paths.

    Attributes:
        model: What is left of the model; its `named_weights` are those of the stage.
    """

    def __init__(self, spec: ModelSpec, model: nn.Module, segments: Sequence[Segment], contiguous: bool = True) -> None:
        """Removes the modules of other segments from the model.

        Args:
            spec: The spec of the model.
            model: The whole model.
            segments: The segments of the stage.
            contiguous: Whether activations and gradients leave the stage contiguous, as gloo requires.
        """
        super().__init__()
        self._spec, self._names = spec, [segment.name for segment in segments]
        own = {path for name in self._names for path in name.split("+")}
        for path in [path for segment in spec.segments() for path in segment.name.split("+")]:
            if path not in own:
                remove(model, path.replace("/", "."))
        self.model = model
        self._contiguous = contiguous

    def forward(self, *handed: Inputs | Handed, **several: torch.Tensor) -> Handed:
        """Returns the inputs of the next stage, computed from those of this stage.

        Args:
            *handed: The inputs, or what the previous stage returned; torch's schedules pass several tensors one by one.
            **several: The inputs of a model that has several, which torch's schedules pass by keyword.
        """
        functions = segment_functions(self._spec, self.model)
        x: Any = several if not handed else handed[0] if len(handed) == 1 else handed
        if self._spec.facts.returns == "several":  # it is the whole model, and only its loss takes the outputs
            return run_segments([functions[name] for name in self._names], x)
        if self._contiguous and not isinstance(x, Mapping):
            x = _each(x, lambda one: _Handed.apply(one) if one.requires_grad else one)
        x = run_segments([functions[name] for name in self._names], x)
        if self._contiguous:
            x = _each(x, torch.Tensor.contiguous)
        graph = next((one for one in tensors_of(x) if one.requires_grad), None)
        if graph is None:
            return x
        return _each(x, lambda one: _Handed.apply(one) if one.requires_grad else _InGraphOf.apply(one, graph))


def _each(handed: Handed, change: Callable[[torch.Tensor], torch.Tensor]) -> Handed:
    return tuple(map(change, handed)) if isinstance(handed, tuple) else change(handed)


def build_stage(
    run: Run, device: torch.device, context: StepContext, segments: Sequence[Segment], contiguous: bool = True
) -> Stage:
    """Builds a stage with its initial weights, in the run's dtype.

    Args:
        run: The run.
        device: The device of this process.
        context: What the layers read about the current micro-batch.
        segments: The segments of the stage.
        contiguous: See `Stage`.
    """
    spec = run.workload.model
    host = torch.device("cpu")  # the whole model may not fit on the device
    stage = build_switched(run, host, context, lambda model: Stage(spec, model, segments, contiguous))
    restructure(run, stage.model)
    weights.materialize(stage.model, device, initial_weights(spec, run.seed), initial_buffers(spec))
    adapt(run, stage, device)
    return stage


def build_stages(
    run: Run, device: torch.device, context: StepContext, stage_ranks: Sequence[int], rank: int
) -> dict[int, Stage]:
    """Returns the stages that a rank holds, by index.

    Args:
        run: The run.
        device: The device of this process.
        context: See `build_stage`.
        stage_ranks: The rank that holds each stage.
        rank: The rank of this process.
    """
    grouped = group_segments(run.workload.model.segments(), len(stage_ranks))
    own = [index for index, holder in enumerate(stage_ranks) if holder == rank]
    stages = {index: build_stage(run, device, context, grouped[index]) for index in own}
    _tie(run, [stage.model for stage in stages.values()])
    return stages


def _tie(run: Run, models: Sequence[nn.Module]) -> None:
    """Makes stages on this rank share the parameters that are tied in the model."""
    for name in shared_parameters(run.workload.model):
        holding = [model for model in models if name in weights.named_weights(model)]
        for model in holding[1:]:
            one, other = (weights.named_weights(each)[name].parameter for each in (holding[0], model))
            for module in model.modules():
                for own in [own for own, parameter in module.named_parameters(recurse=False) if parameter is other]:
                    module.register_parameter(own, one)


def output_shapes(run: Run, num_stages: int, rows: int) -> tuple[tuple[torch.Size, ...], ...]:
    """Returns the shapes of the tensors that each stage hands on, without computing them.

    Args:
        run: The run.
        num_stages: The number of stages into which the model is split.
        rows: The number of examples.
    """
    model, shapes = run.workload.model, []
    if not model.facts.is_built_here:  # such a model was described with torch's layouts
        grouped = group_segments(model.segments(), num_stages)
        last = [segments[-1] for segments in grouped]
        return tuple(tuple(torch.Size((rows, *one)) for one in each.several or (each.outputs,)) for each in last)
    spec = model.inputs()
    with torch.device("meta"):
        functions = segment_functions(model, build_model(model, StepContext()))
        x = torch.empty(rows, *spec.shape, dtype=torch.float32 if spec.ids is None else torch.int64)
        for segments in group_segments(model.segments(), num_stages):
            x = run_segments([functions[segment.name] for segment in segments], x)
            shapes.append((x.shape,))
    return tuple(shapes)
