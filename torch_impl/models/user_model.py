"""Builds a user model from its file, with its forward pass as segments if they are known."""

import functools
import inspect
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import register_parametrization
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from samestep.common.errors import ConfigError
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.models.dtypes import check_numbers
from samestep.common.workload.models.spec import ModelSpec
from samestep.torch_impl.models import widened
from samestep.torch_impl.models.outputs import dtype_of, finish_outputs
from samestep.torch_impl.models.segmented import SegmentFunction
from samestep.torch_impl.models.uncast import keep_float64
from samestep.torch_impl.step_context import StepContext

_FORMER = (WeightNorm, SpectralNorm)
"""Hooks that keep a weight that is not a parameter."""


def declared(spec: ModelSpec) -> Model:
    """Returns the declaration of a described model."""
    return load_model(spec.facts.source, "torch")


def build_user_model(spec: ModelSpec, context: StepContext) -> nn.Module:
    """Builds the model of a description; its weights are not set yet.

    Args:
        spec: The description.
        context: Ignored, because a user's layers read nothing about the step.
    """
    module = build_declared(declared(spec), spec.facts.source, spec.facts.unread)
    keep_float64(module, spec.facts.casts)
    return module


def build_declared(model: Model, source: str, unread: Collection[int] = ()) -> nn.Module:
    """Builds a module whose forward pass returns what its loss takes.

    Args:
        model: The declaration, which has a builder for torch.
        source: Where the model is declared, for messages.
        unread: The positions of what the model returns but its loss does not read.

    Raises:
        ConfigError: The builder fails, or what it returns is not a module that strategies can train.
    """
    assert model.torch is not None
    widened.install()
    if isinstance(model.torch, nn.Module):
        raise ConfigError(f"--model {source}: torch= is a module; give the function that builds it.")
    built = call_user(model.torch, source, "the function given as torch=")
    if not isinstance(built, nn.Module):
        raise ConfigError(
            f"--model {source}: the function given as torch= returned {_kind(built)}, not a torch.nn.Module."
        )
    call_user(_refuse_odd, source, "a first look at the module", built)
    _refuse_unfit(built, source)
    hold_in_parts(built)
    if not any(parameter.requires_grad for parameter in built.parameters()):
        raise ConfigError(f"--model {source}: the model has no parameters to train.")
    if devices := {str(p.device) for p in built.parameters() if p.device.type not in ("cpu", "meta")}:
        raise ConfigError(
            f"--model {source}: the model was built on {devices.pop()}; build it without a device: a strategy moves it."
        )
    check_numbers(source, "torch", dtypes_of(built.named_parameters()), dtypes_of(built.named_buffers()))
    built.register_forward_pre_hook(functools.partial(_by_keyword, _only_parameter(built)), with_kwargs=True)
    finish_outputs(built, model, unread)
    return built


def _refuse_odd(built: nn.Module) -> None:
    """Refuses modules that strategies cannot hook into, and modules whose methods do not behave like torch's."""
    kind, was_training = _kind(built), built.training
    if isinstance(built, torch.jit.ScriptModule):
        raise ConfigError(f"the model is a {kind}, which takes no hooks; return the module before torch.jit is called.")
    if kind == "OptimizedModule":
        raise ConfigError("the model is what torch.compile returns; return the module itself, and give --compile.")
    built.eval()
    built.train(was_training)
    if others := [_kind(each) for each in built.parameters() if not isinstance(each, nn.Parameter)]:
        raise ConfigError(f"its parameters() gives {others[0]}, not parameters; leave that method to torch.nn.Module.")


def _refuse_unfit(built: nn.Module, source: str) -> None:
    """Refuses what no strategy could lay out: parameters without a size, sparse parameters, and torch's old norms of weights."""
    for path, each in built.named_modules():
        kind, where = _kind(each), f"`{path}`" if path else "the model itself"
        if (former := next((h for h in each._forward_pre_hooks.values() if isinstance(h, _FORMER)), None)) is not None:
            use = type(former).__module__.rpartition(".")[2]
            raise ConfigError(
                f"--model {source}: the {kind} {where} has torch.nn.utils.{use}, and torch copies no module that "
                f"has it; use torch.nn.utils.parametrizations.{use}."
            )
        for name, held in (*each.named_parameters(recurse=False), *each.named_buffers(recurse=False)):
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
    """Returns the names of the dtypes of parameters or buffers, such as "float32"."""
    return {name: dtype_of(tensor) for name, tensor in tensors}


def _only_parameter(built: nn.Module) -> str | None:
    """Returns the only required parameter of a forward pass, such as `batch`; None if there are several."""
    needed = [
        name
        for name, each in inspect.signature(built.forward).parameters.items()
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    return needed[0] if len(needed) == 1 else None


def _by_keyword(only: str | None, module: nn.Module, inputs: tuple[object, ...], named: dict[str, object]) -> object:
    """Passes several inputs to the user's forward pass, by keyword or as one mapping."""
    if not (inputs and isinstance(inputs[0], Mapping)):
        return None
    return ((), dict(inputs[0])) if only is None or only in inputs[0] else ((dict(inputs[0]),), {})


def _kind(value: object) -> str:
    return type(value).__name__


def user_segments(spec: ModelSpec, module: nn.Module) -> dict[str, SegmentFunction]:
    """Returns the forward pass as functions by name, taken from the user's file or a sequential model.

    Args:
        spec: The description.
        module: The built model, or the part that a stage has left of it.
    """
    return find_segments(declared(spec), module, spec.facts.source) or {spec.segments()[0].name: module}


def find_segments(model: Model, module: nn.Module, source: str) -> dict[str, SegmentFunction]:
    """Returns the known segments of a model; an empty dict if it is not known as a sequence.

    Args:
        model: The declaration.
        module: The built model.
        source: Where the model is declared, for messages.

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


class _Parts(nn.Module):
    def forward(self, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
        return torch.complex(real, imaginary)

    def right_inverse(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return value.real.clone(), value.imag.clone()


def hold_in_parts(model: nn.Module) -> None:
    """Makes a model hold each complex parameter as two real ones, from which its forward pass computes the complex one.

    A parameter that belongs to several modules is left alone, because it would become several parameters.

    Args:
        model: The model, changed in place. Its parameter `w` becomes `parametrizations.w.original0` and `original1`.
    """
    owners = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
    for module in list(model.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.is_complex() and owners[id(parameter)] == 1:
                register_parametrization(module, name, _Parts())
