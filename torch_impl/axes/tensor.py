"""The axis `tensor`: how each layer is split, and where placements change.

The neutral split table is turned into a plan for `parallelize_module`.

In Megatron's pairs, a layer split by column leaves its outputs sharded, and the layer split by row that follows takes the
shards and sums. Parameters that the table does not name stay whole on every rank. That includes convolutions, which DTensor
(torch 2.13) computes wrongly, without an error, when they are sharded.

References:
    Shoeybi et al., arXiv 1909.08053.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from samestep.common.batch import Chunk
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, layer, parameters_of
from samestep.common.workload.models.transformer import LOGITS
from samestep.common.workload.split import even_split_table
from samestep.torch_impl.features.applied import in_parts
from samestep.torch_impl.models.experts import Experts, Stacked
from samestep.torch_impl.sharded import cut, full_tensor
from samestep.torch_impl.weights import remade


def split_by_tensor(
    run: Run, model: nn.Module, mesh: DeviceMesh, between_pairs: Mapping[str, ParallelStyle] | None = None
) -> None:
    """Splits the layers of a model or a stage, in place.

    Args:
        run: The run, whose split table says what is split; with one rank along `tensor`, nothing is.
        model: The model on one device, with the same weights on every rank.
        mesh: All ranks.
        between_pairs: The style of each module between the pairs of layers, if those are split as well.
    """
    if run.mesh.tensor == 1:
        return
    spec, whole, mesh = run.workload.model, mesh, mesh["tensor"]
    plan = {**_plan_pairs(spec, mesh.size()), **_plan_shared_inputs(spec), **(between_pairs or {})}
    paths = {path for path, module in model.named_modules() if not isinstance(module, nn.Identity)}
    with remade(model):
        parallelize_module(model, mesh, {path: style for path, style in plan.items() if path in paths})
    split, own = even_split_table(spec, mesh.size()), Chunk(mesh.get_local_rank(), mesh.size())
    _split_experts(model, whole, split)
    for each in in_parts(model):
        if split.get(f"{each.behind}/kernel") == 1:
            each.place(-1, own)
        elif each.behind and between_pairs:
            each.place(1, own)
    for parameter in (each for each in model.parameters() if each.requires_grad):
        parameter.register_post_accumulate_grad_hook(_redistribute_gradient)


def _split_experts(model: nn.Module, mesh: DeviceMesh, split: Mapping[str, int]) -> None:
    """Splits the layers of experts in pairs, in place; the gradient of their inputs and their outputs are each summed once.

    Args:
        model: The model, or a stage of it.
        mesh: All ranks.
        split: The split table.
    """
    along, kinds = mesh["tensor"], {"weight": "kernel", "bias": "bias"}
    for path, module in model.named_modules():
        if isinstance(module, Experts):
            module.compute, module.down.sum_parts = _WholeInputs(module.compute, along), _Sum(along)
        if isinstance(module, Stacked):
            neutral = {name: f"{path.replace('.', '/')}/{kinds[name]}" for name in dict(module.named_parameters())}
            for name in (name for name in neutral if neutral[name] in split):
                cut(module, name, mesh, "tensor", split[neutral[name]])


@dataclasses.dataclass(frozen=True)
class _WholeInputs:
    """Experts whose layers are split; each rank computes a partial gradient of their inputs, which is then summed."""

    compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    mesh: DeviceMesh

    def __call__(self, x_SD: torch.Tensor, counts_E: torch.Tensor) -> torch.Tensor:
        whole = DTensor.from_local(x_SD, self.mesh, [Replicate()], run_check=False)
        return self.compute(whole.to_local(grad_placements=[Partial()]), counts_E)


@dataclasses.dataclass(frozen=True)
class _Sum:
    """Sums a partial tensor over the ranks."""

    mesh: DeviceMesh

    def __call__(self, part: torch.Tensor) -> torch.Tensor:
        sharded = DTensor.from_local(part, self.mesh, [Partial()], run_check=False)
        return sharded.redistribute(placements=[Replicate()]).to_local()


def _redistribute_gradient(parameter: torch.Tensor) -> None:
    """Shards a gradient like its parameter: a table's gradient arrives replicated, and that of a norm on shards is partial."""
    gradient: Any = parameter.grad
    if isinstance(parameter, DTensor) and gradient.placements != parameter.placements:
        parameter.grad = gradient.redistribute(placements=parameter.placements)


def _plan_pairs(spec: ModelSpec, num_parts: int) -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {}
    params = spec.params()
    last = {} if spec.facts.takes_whole_logits else parameters_of(spec, spec.segments()[-1])
    for name, axis in even_split_table(spec, num_parts).items():
        if params[name].stacked:
            continue
        if params[name].role == "table":
            plan[_path(layer(name))] = RowwiseParallel(input_layouts=Replicate())
            if params[name].tied:
                plan[_path(LOGITS)] = ColwiseParallel(use_local_output=False)
        elif params[name].role == "kernel" and axis == 0:
            plan[_path(layer(name))] = RowwiseParallel()
        elif params[name].role == "kernel":  # the logits stay sharded, because the loss takes shards
            plan[_path(layer(name))] = ColwiseParallel(use_local_output=name not in last)
    return plan


def _plan_shared_inputs(spec: ModelSpec) -> dict[str, ParallelStyle]:
    """Returns the style of each module whose layers share an input, so its gradient is summed once and not once per layer."""
    sharing = (name for name, param in spec.params().items() if param.shares_input and not param.stacked)
    modules = dict.fromkeys(layer(layer(name)) for name in sharing)
    style = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    return {_path(module): style for module in modules}


def _path(name: str) -> str:
    """Returns torch's path of a module, given its neutral name."""
    return name.replace("/", ".")


class FullLogits(nn.Module):
    """A model that returns whole logits when no gradient is computed."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns logits; in training they stay sharded, because the loss takes shards."""
        logits = self.model(x)
        return logits if torch.is_grad_enabled() else full_tensor(logits)
