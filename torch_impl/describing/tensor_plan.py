"""Finds the linear layers that tensor parallelism splits, from the file or from transformers, and checks them on two ranks."""

import copy
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed._local_tensor import LocalTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from samestep.common.errors import ConfigError, percent, unknown
from samestep.common.workload.declaration import Model
from samestep.common.workload.draws import DRAWS
from samestep.torch_impl.describing.optimizer import RANKS, two_ranks
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.models.outputs import main_outputs

Plan = Mapping[str, str]
"""Path of a linear layer -> how it is split."""
STYLES: Mapping[str, type[ParallelStyle]] = {"column": ColwiseParallel, "row": RowwiseParallel}
_PUBLISHED = {"colwise": "column", "rowwise": "row"}
"""Name in transformers' `base_model_tp_plan` -> our name; it has other names, which belong to no pair of linear layers."""
_SAME = 1e-9
"""The largest difference between outputs in float64, relative to the largest output."""
_FIXED = "is invalid for input of size"
"""What torch says if a reshape names a whole size, but a rank has only a part of it."""


def find_plan(model: Model, module: nn.Module, inputs: Inputs, source: str) -> Plan:
    """Returns how each linear layer is split; an empty plan if that is not known.

    Args:
        model: The declaration.
        module: The built model in float64, in evaluation.
        inputs: Some examples.
        source: Where the model is declared, for messages.

    Raises:
        ConfigError: The plan names something that is not a linear layer, or an unknown way to split one, or the split model
            computes a different function.
    """
    linear = {path: each for path, each in module.named_modules() if isinstance(each, nn.Linear)}
    if not model.tensor_plan:
        return _published_plan(module, linear, inputs)
    paths: dict[str, list[str]] = {}
    for pattern, way in model.tensor_plan.items():
        if way not in STYLES:
            raise unknown(
                "way to cut a layer", way, tuple(STYLES), f"The tensor_plan of {source} gives it to {pattern}."
            )
        paths[pattern] = [path for path in linear if _matches(path, pattern)]
        if not paths[pattern]:
            raise unknown("linear layer", pattern, linear, f"The tensor_plan of {source} names it.")

    def cut(patterns: Iterable[str]) -> Plan:
        return {path: model.tensor_plan[pattern] for pattern in patterns for path in paths[pattern]}

    try:
        off = _try(module, linear, cut(paths), inputs)
    except Exception as error:  # what cannot be simulated shows in the run, except a wrong shape
        if _FIXED in str(error):
            raise ConfigError(
                f"--model {source}: with this tensor_plan, the forward pass fails on {RANKS} ranks: {error}; a rank has only "
                f"its part of {' and '.join(paths)}, so write -1 there in place of a number of heads or a width."
            ) from None
        off = None
    if off:
        groups = itertools.groupby(sorted(paths, key=_parent), _parent)
        wrong = next(
            (g for g in (list(group) for _, group in groups) if _deviation(module, linear, cut(g), inputs)), paths
        )
        raise ConfigError(
            f"--model {source}: with this tensor_plan, the result of {' and '.join(wrong)} is off by {percent(off)} on {RANKS} "
            "ranks; each rank needs whole heads, and a layer for queries, keys and values together has to be split into three."
        )
    return cut(paths)


def _published_plan(module: nn.Module, linear: Mapping[str, nn.Linear], inputs: Inputs) -> Plan:
    """Returns the plan that a model of transformers comes with; an empty one if its parts would compute another function."""
    published: Any = getattr(module, "_tp_plan", None) or {}
    named = {pattern: _PUBLISHED[way] for pattern, way in published.items() if way in _PUBLISHED}
    plan = {path: way for pattern, way in named.items() for path in linear if _matches(path, pattern)}
    return plan if plan and _deviation(module, linear, plan, inputs) == 0 else {}


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _matches(path: str, pattern: str) -> bool:
    own, parts = path.split("."), pattern.split(".")
    return len(own) == len(parts) and all(part in ("*", name) for name, part in zip(own, parts, strict=True))


def _deviation(module: nn.Module, linear: Mapping[str, nn.Module], plan: Plan, inputs: Inputs) -> float | None:
    """Returns the relative difference between the outputs of two ranks and of one; None if it cannot be simulated."""
    try:
        return _try(module, linear, plan, inputs)
    except Exception:  # what cannot be simulated shows in the run
        return None


def _try(module: nn.Module, linear: Mapping[str, nn.Module], plan: Plan, inputs: Inputs) -> float:
    even = {path: way for path, way in plan.items() if not _cut(linear[path], way) % RANKS}  # rows split only these
    with torch.no_grad(), DRAWS.held():
        whole = main_outputs(module(inputs))
        with two_ranks() as mesh:
            cut = parallelize_module(copy.deepcopy(module), mesh, {path: STYLES[way]() for path, way in even.items()})
            made = main_outputs(cut(inputs))
        parts = made._local_tensors.values() if isinstance(made, LocalTensor) else [made]
        off = max(float((part - whole).abs().max() / whole.abs().max()) for part in parts)
    return 0.0 if off <= _SAME else off


def _cut(each: nn.Module, way: str) -> int:
    assert isinstance(each, nn.Linear)
    return each.out_features if way == "column" else each.in_features
