"""Builds the user model once and writes down what the processes of all strategies need to know about it."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from samestep.common.errors import ConfigError
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import IDS, call_user, load_model
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.description_report import EXAMPLES, BuildReport, LossOfEach, kind_of, write_found
from samestep.common.workload.models.dtypes import is_real
from samestep.common.workload.models.findings import Habits
from samestep.common.workload.models.probing import FORWARD_PASS, find_habits
from samestep.common.workload.models.spec import layer
from samestep.torch_impl import weights
from samestep.torch_impl.describing.blocks import find_blocks
from samestep.torch_impl.describing.flops import FlopCounter
from samestep.torch_impl.describing.layers import describe_layers
from samestep.torch_impl.describing.optimizer import describe_optimizer
from samestep.torch_impl.describing.probing import Probe
from samestep.torch_impl.describing.reach import find_reach
from samestep.torch_impl.describing.roundings import find_kept_roundings, find_roundings
from samestep.torch_impl.describing.segments import describe_segments
from samestep.torch_impl.describing.tensor_plan import Plan, find_plan
from samestep.torch_impl.describing.uses import describe_uses
from samestep.torch_impl.features.applied import layers_of
from samestep.torch_impl.features.draws import STILL
from samestep.torch_impl.models.inputs import Inputs, as_inputs
from samestep.torch_impl.models.outputs import is_tensor, main_outputs
from samestep.torch_impl.models.uncast import find_casts, keep_float64
from samestep.torch_impl.models.user_loss import loss_function
from samestep.torch_impl.models.user_model import build_declared, dtypes_of


def describe(folder: Path, source: str, split: Split, seed: int) -> None:
    """Describes a user model.

    Args:
        folder: The folder that the description is written to.
        source: The model as FILE.py:NAME, with an absolute path.
        split: The data.
        seed: The seed with which the initial weights are drawn.

    Raises:
        ConfigError: The file, the model or the data are invalid; the message says what to change.
    """
    DRAWS.install(STILL)
    model = load_model(source, "torch")
    if model.torch is None:
        raise ConfigError(f"--model {source} has no model for torch; add `torch=` to its samestep.Model.")
    torch.manual_seed(seed)
    module = build_declared(model, source)
    dtypes = dtypes_of([*module.named_parameters(), *module.named_buffers()])
    inputs, targets = (as_inputs(array[:EXAMPLES].copy()) for array in (split.train_inputs, split.train_targets))
    keep_float64(module.double(), casts := find_casts(module, inputs))
    returned, flops = _try_forward(model, module, inputs, source)
    segments = describe_segments(model, module, inputs, returned, flops, source)  # in evaluation, like the outputs
    splits, named = _splits(find_plan(model, module, inputs, source)), weights.named_weights(module)
    habits, written = _find_habits(model, module, split, source)
    reach = find_reach(module, inputs, FORWARD_PASS in habits.randoms, source, _loss_of(model, targets, source))
    blocks = tuple(find_blocks(model, module, inputs, split.train_inputs if reach.may_skip else None, source))
    found = BuildReport(
        outputs=main_outputs(returned).detach().numpy(),
        loss_of_each=_loss_of_each(model, returned, targets, source),
        returns=kind_of(model, returned, is_tensor),
        unread=reach.unread,
        params={name: weight.to_neutral(weight.parameter) for name, weight in named.items()},
        splits=splits,
        buffers={name: buffer.detach().numpy().copy() for name, buffer in weights.named_buffers(module).items()},
        dtypes={name: dtype for name, dtype in dtypes.items() if is_real(dtype) and dtype != "float32"},
        segments=segments,
        blocks=blocks,
        featured=layers_of(module),
        habits=habits,
        unused=reach.unused,
        branches=reach.branches,
        layers=describe_layers(module, inputs),
        frozen=frozenset(name for name, weight in named.items() if not weight.parameter.requires_grad),
        uses=describe_uses(module, inputs, {*(block.name for block in blocks), *map(layer, splits)}),
        optimizer=describe_optimizer(model, copy.deepcopy(module), source),
        written=written,
        casts=casts,
        rounded=find_roundings(module, inputs),  # this and the next change the model
        kept=find_kept_roundings(module, inputs, dtypes),
    )
    write_found(folder, model, source, "torch", split, seed, found)


def _find_habits(model: Model, module: nn.Module, split: Split, source: str) -> tuple[Habits, tuple[str, ...]]:
    """Returns what a forward pass in training depends on, and the parameters that it writes, which their versions reveal."""
    versions = {name: parameter._version for name, parameter in module.named_parameters()}
    habits = call_user(find_habits, source, "what it does", Probe(module, model, split, source))
    return habits, tuple(name for name, each in module.named_parameters() if each._version != versions[name])


def _loss_of(model: Model, targets: torch.Tensor, source: str) -> Callable[[object], object]:
    """Returns the user's loss function; without one, a function that returns the outputs, all of which our losses read."""
    function = loss_function(model)
    if function is None:
        return main_outputs
    return lambda returned: call_user(function, source, "the loss", returned, targets)


def _loss_of_each(model: Model, outputs: object, targets: torch.Tensor, source: str) -> LossOfEach | None:
    function = loss_function(model)
    if function is None:
        return None

    def each() -> np.ndarray:
        losses = call_user(function, source, "the loss", outputs, targets)
        is_real = isinstance(losses, torch.Tensor) and losses.is_floating_point()
        return losses.detach().double().numpy() if is_real else np.asarray(losses)

    return each


def _try_forward(model: Model, module: nn.Module, inputs: Inputs, source: str) -> tuple[object, int]:
    """Returns what the model returns for some examples, and the FLOPs per example."""
    module.eval()
    counter, before = FlopCounter(), dict(module.named_parameters())
    trained = {name for name, each in before.items() if each.requires_grad}
    with torch.no_grad(), counter:
        outputs = call_user(module, source, f"the forward pass of {_told(inputs)}", inputs)
    if made := [name for name, each in module.named_parameters() if before.get(name) is not each]:
        raise ConfigError(
            f"--model {source}: the forward pass creates the parameter {made[0]}, which no optimizer updates; create it when "
            f"the model is built."
        )
    if changed := trained ^ {name for name, each in module.named_parameters() if each.requires_grad}:
        raise ConfigError(
            f"--model {source}: the forward pass changes whether {min(changed)} is trained; set requires_grad when the model is "
            f"built."
        )
    if loss_function(model) is None and not isinstance(outputs, torch.Tensor):  # a custom __call__ runs no hooks
        kind = type(outputs).__name__
        raise ConfigError(
            f"--model {source}: the model returns {kind} when it is called; put what it does into forward()."
        )
    return outputs, counter.get_total_flops() // EXAMPLES


def _told(inputs: Inputs) -> str:
    if isinstance(inputs, torch.Tensor):
        return f"{inputs.dtype} {list(inputs.shape)}{'' if inputs.is_floating_point() else IDS}"
    return ", ".join(f"{name} {_told(one)}" for name, one in inputs.items())


def _splits(plan: Plan) -> dict[str, int]:
    """Returns the axis along which each parameter of the tensor plan is split, by neutral name."""
    splits: dict[str, int] = {}
    for name, way in ((path.replace(".", "/"), way) for path, way in plan.items()):
        splits |= {f"{name}/kernel": 1, f"{name}/bias": 0} if way == "column" else {f"{name}/kernel": 0}
    return splits
