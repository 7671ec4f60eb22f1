"""The user's own model, built from their file, with its forward pass as segments where they are known."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from samestep.common.errors import ConfigError
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.description_report import dropped_losses
from samestep.common.workload.models.dtypes import check_numbers, check_outputs
from samestep.common.workload.models.spec import ModelSpec
from samestep.torch_impl.models.draws import STILL
from samestep.torch_impl.models.segmented import SegmentFunction, run_segments
from samestep.torch_impl.step_context import StepContext


def declared(spec: ModelSpec) -> Model:
    """Returns the declaration of a described model."""
    return load_model(spec.facts.source, "torch")


def build_user_model(spec: ModelSpec, context: StepContext) -> nn.Module:
    """Builds the model of a description; its weights are yet to be set.

    Args:
        spec: The description.
        context: Ignored: a user's layers read nothing of the step.
    """
    return build_declared(declared(spec), spec.facts.source)


def build_declared(model: Model, source: str) -> nn.Module:
    """Builds a module whose forward pass returns a tensor.

    Args:
        model: The declaration, which has a builder for torch.
        source: Where it is declared, for messages.

    Raises:
        ConfigError: The builder fails, returns no module, or one of numbers that are not real.
    """
    assert model.torch is not None
    if isinstance(model.torch, nn.Module):
        raise ConfigError(f"--model {source}: torch= is a module; give the function that builds it.")
    built = call_user(model.torch, source, "the function given as torch=")
    if not isinstance(built, nn.Module):
        raise ConfigError(
            f"--model {source}: the function given as torch= returned {_kind(built)}, not a torch.nn.Module."
        )
    _refuse_unfit(built, source)
    if not any(parameter.requires_grad for parameter in built.parameters()):
        raise ConfigError(f"--model {source}: the model has no parameters to train.")
    if devices := {str(p.device) for p in built.parameters() if p.device.type not in ("cpu", "meta")}:
        raise ConfigError(
            f"--model {source}: the model was built on {devices.pop()}; build it without a device: a strategy moves it."
        )
    check_numbers(source, "torch", dtypes_of(built.named_parameters()), dtypes_of(built.named_buffers()))
    built.register_forward_pre_hook(_by_keyword, with_kwargs=True)
    built.register_forward_hook(_keep_outputs)
    return built


def _refuse_unfit(built: nn.Module, source: str) -> None:
    """Refuses parameters and buffers that no strategy could lay out: those without a size, and sparse ones."""
    for path, each in built.named_modules():
        for name, held in (*each.named_parameters(recurse=False), *each.named_buffers(recurse=False)):
            kind, where = type(each).__name__, f"`{path}`" if path else "the model itself"
            if is_lazy(held):
                plain = kind.removeprefix("Lazy")
                write = f"write nn.{plain} with the size of its inputs" if plain != kind else "give it its shape"
                raise ConfigError(
                    f"--model {source}: the {kind} {where} has a {name} whose size is unknown before its first call, and all "
                    f"weights are drawn and laid out before that; {write}."
                )
            if held.layout != torch.strided:
                raise ConfigError(
                    f"--model {source}: the {kind} {where} has a {name} in the layout {held.layout}, which no strategy can "
                    f"split or send; make it dense with .to_dense()."
                )


def dtypes_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, str]:
    """Names the dtypes of parameters or buffers, such as "float32"."""
    return {name: _dtype_of(tensor) for name, tensor in tensors}


def _dtype_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _by_keyword(module: nn.Module, inputs: tuple[object, ...], named: dict[str, object]) -> object:
    """Hands several inputs to the user's forward pass by keyword."""
    return ((), dict(inputs[0])) if inputs and isinstance(inputs[0], Mapping) else None


def switch_functions(dropout: bool | None) -> None:
    """Makes the functions ready that draw random numbers in a forward pass; to be done before the user's file is imported.

    Args:
        dropout: False does so.
    """
    if dropout is False:
        DRAWS.install(STILL)


def switch_layers(model: nn.Module, dropout: bool | None, batch_norm: str, running: Collection[str] = ()) -> None:
    """Switches layers of a built model off whose effect depends on how it is split.

    Args:
        model: The model, or a stage of it.
        dropout: False switches every dropout off, and holds every other random draw of this process still.
        batch_norm: "frozen" makes batch normalisations use and keep their running statistics.
        running: Other buffers that training moves, by neutral name; "frozen" makes their modules keep them.
    """
    DRAWS.are_still = dropout is False
    owners = {name.rpartition("/")[0].replace("/", ".") for name in running if batch_norm == "frozen"}
    for each in [each for path, each in model.named_modules() if path in owners]:
        each.train = functools.partial(_train_below, each)  # type: ignore[method-assign]
        each.training = False
    for each in model.modules():
        if dropout is False and isinstance(each, nn.modules.dropout._DropoutNd):
            each.p = 0.0
        elif dropout is False and isinstance(each, nn.MultiheadAttention | nn.RNNBase):
            each.dropout = 0.0
        elif batch_norm == "frozen" and isinstance(each, nn.modules.batchnorm._BatchNorm):
            each.register_forward_pre_hook(_evaluate)


def _train_below(module: nn.Module, mode: bool = True) -> nn.Module:
    """Has the modules of a module train, which itself stays in evaluation."""
    type(module).train(module, mode)
    module.training = False
    return module


def _evaluate(module: nn.Module, inputs: object) -> None:
    module.eval()


def _keep_outputs(module: nn.Module, inputs: object, outputs: object) -> torch.Tensor:
    """Returns what the loss takes: the outputs themselves, or their `logits`."""
    if isinstance(outputs, torch.Tensor):
        check_outputs("the model", _dtype_of(outputs))
        return outputs.float() if outputs.dtype.itemsize == 2 else outputs  # losses never have two bytes
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if not isinstance(logits, torch.Tensor):
        raise ConfigError(
            f"the model returns {_kind(outputs)}; return a tensor, or a mapping or an object with `logits`."
        )
    if lost := dropped_losses(outputs):
        raise ConfigError(
            f"the model returns {lost} beside its logits, which no strategy would train on; leave it out."
        )
    return _keep_outputs(module, inputs, logits)


def _kind(value: object) -> str:
    return type(value).__name__


def user_segments(spec: ModelSpec, module: nn.Module) -> dict[str, SegmentFunction]:
    """Returns the forward pass as functions by name, as the user's file or a sequential model has them.

    Args:
        spec: The description.
        module: The built model, or what a stage has left of it.
    """
    return find_segments(declared(spec), module, spec.facts.source) or {spec.segments()[0].name: module}


def find_segments(model: Model, module: nn.Module, source: str) -> dict[str, SegmentFunction]:
    """Returns the segments that a model is known to have; none if it is not known as a sequence.

    Args:
        model: The declaration.
        module: The built model.
        source: Where it is declared, for messages.

    Raises:
        ConfigError: The user's function fails.
    """
    given = (model.segments or {}).get("torch")
    if given is not None:
        found = call_user(given, source, "the function given as segments", module)
        if not isinstance(found, Mapping) or not found or not all(map(callable, found.values())):
            raise ConfigError(
                f"--model {source}: the function given as segments returned {_kind(found)}; return functions by name, in order, "
                "as in {'embed': model.embed, 'head': model.head}."
            )
        return {name.replace(".", "/"): function for name, function in found.items()}
    is_plain = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    return dict(module.named_children()) if is_plain else {}


def composed(segments: Mapping[str, SegmentFunction]) -> SegmentFunction:
    """Returns the forward pass that the segments make up."""
    return functools.partial(run_segments, segments.values())


def user_loss(spec: ModelSpec) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Returns the user's own loss, summed over every target."""
    given = declared(spec).loss
    assert isinstance(given, Mapping)
    function = given["torch"]
    return lambda outputs, targets: function(outputs, targets).sum()


def user_mean_loss(spec: ModelSpec) -> Callable[[np.ndarray, np.ndarray], float]:
    """Returns the user's own loss as a metric: the mean over all held-out targets."""
    loss = user_loss(spec)
    return lambda outputs, targets: float(loss(*map(torch.from_numpy, (outputs, targets)))) / targets.size
