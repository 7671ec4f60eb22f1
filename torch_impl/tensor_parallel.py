"""The neutral split table as a plan for `parallelize_module`: which layer is cut how, and where layouts change.

Megatron's pairs: a layer cut by column leaves its outputs in parts, the layer cut by row that follows takes them so and
sums. What the table does not name stays whole on every rank: convolutions too, which DTensor (torch 2.13) computes
wrongly, and silently, when they are sharded.

References:
    Shoeybi et al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198 (sequence parallel).
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from common.workload.models.spec import ModelSpec, even_split_table
from torch_impl.sharded import whole

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def split_by_tensor(model: nn.Module, spec: ModelSpec, mesh: DeviceMesh, sequence_parallel: bool = False) -> None:
    """Cuts the layers of a model, or of what is left of it in a stage, in place.

    Args:
        model: On one device; its weights are the same on every rank.
        spec: Its spec, whose split table says what is cut.
        mesh: The ranks that share it.
        sequence_parallel: A transformer's: between the pairs, every rank holds its part of the sequence only.
    """
    plan = _pairs(spec, mesh.size())
    for attention in _modules(spec, "attention/query"):
        # Query, key and value read one input, whose gradient is then summed once and not three times.
        plan[attention] = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    if sequence_parallel:
        plan |= _between_pairs(spec)
    paths = {path for path, module in model.named_modules() if not isinstance(module, nn.Identity)}
    parallelize_module(model, mesh, {path: style for path, style in plan.items() if path in paths})
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(_lay_out_gradient)


def _lay_out_gradient(parameter: torch.Tensor) -> None:
    """Cuts a gradient as its parameter is cut: that of a table comes whole, that of a norm on parts as a sum to take."""
    if isinstance(parameter, DTensor) and parameter.grad.placements != parameter.placements:
        parameter.grad = parameter.grad.redistribute(placements=parameter.placements)


def _pairs(spec: ModelSpec, parts: int) -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {}
    for name, axis in even_split_table(spec, parts).items():
        module, _, kind = name.rpartition("/")
        path = module.replace("/", ".")
        if kind == "table":
            plan[path] = RowwiseParallel(input_layouts=Replicate())
        elif kind == "kernel" and axis == 0:
            plan[path] = RowwiseParallel()
        elif kind == "kernel":  # the logits stay in parts, as the loss takes them
            plan[path] = ColwiseParallel(use_local_output=not module.startswith(spec.cuts()[-1].name))
    return plan


def _between_pairs(spec: ModelSpec) -> dict[str, ParallelStyle]:
    """All-gather before a pair, reduce-scatter behind it, and norms on parts of the sequence."""
    plan: dict[str, ParallelStyle] = {
        "embedding": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
        "head.norm": SequenceParallel(),
        "head.logits": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    for attention in _modules(spec, "attention/query"):
        block = attention.removesuffix(".attention")
        plan |= {f"{block}.{norm}": SequenceParallel() for norm in ("attention_norm", "mlp_norm")}
        for pair in ("attention", "mlp"):
            plan[f"{block}.{pair}"] = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
        plan |= {f"{block}.{out}": RowwiseParallel(output_layouts=Shard(1)) for out in ("attention.output", "mlp.down")}
    return plan


def _modules(spec: ModelSpec, ending: str) -> list[str]:
    """The paths of the modules whose last part but one and last part are given: "attention/query" finds attentions."""
    found = [name.removesuffix("/kernel") for name in spec.params() if name.endswith(f"{ending}/kernel")]
    return [module.rpartition("/")[0].replace("/", ".") for module in found]


def loss_over_parts(loss: Loss) -> Loss:
    """A loss of logits that may be in parts; enter `loss_parallel()` around it and its backward pass."""
    return lambda logits, targets: whole(loss(logits, targets))


class WholeLogits(nn.Module):
    """A model whose logits are whole whenever no gradient is wanted."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits: in parts only for a loss that is taken over parts."""
        logits = self.model(x)
        return logits if torch.is_grad_enabled() else whole(logits)
