"""Describes the segments of a user model: the parameters, the FLOPs and the outputs of each."""

import torch
from torch import nn

from samestep.common.errors import ConfigError, unknown
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user
from samestep.common.workload.models.description_report import kind_of
from samestep.common.workload.models.spec import Segment
from samestep.torch_impl import weights
from samestep.torch_impl.describing.flops import FlopCounter
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.models.outputs import is_tensor, main_outputs
from samestep.torch_impl.models.segmented import Handed, run_segments, tensors_of
from samestep.torch_impl.models.user_model import find_segments

_SAME = 1e-9
"""The largest relative difference allowed between segments and model in float64, as both compute the same operations."""


def describe_segments(
    model: Model, module: nn.Module, inputs: Inputs, outputs: object, flops: int, source: str
) -> tuple[Segment, ...]:
    """Describes the segments, each with its FLOPs and outputs; refuses segments that do not add up to the model.

    Args:
        model: The declaration.
        module: The built model, in evaluation.
        inputs: The inputs of some examples.
        outputs: The outputs of the model for these examples.
        flops: The FLOPs of the whole forward pass, per example.
        source: Where the model is declared, for messages.

    Raises:
        ConfigError: A segment fails or returns something other than tensors, or the segments are not the forward pass.
    """
    named = weights.named_weights(module)
    functions = {} if kind_of(model, outputs, is_tensor) != "outputs" else find_segments(model, module, source)
    if not functions or not isinstance(outputs, torch.Tensor):
        return (Segment("", flops, tuple(main_outputs(outputs).shape[1:]), tuple(named)),)
    rows, found, x = len(outputs), [], inputs
    for name, function in functions.items():
        counter = FlopCounter()
        with torch.no_grad(), counter:
            x = call_user(run_segments, source, f"segment '{name}'", [function], x)
        shapes = _shapes(x, name, rows, source)
        own = {id(p) for path in name.split("+") for p in _parameters(module, path, name, source)}
        held = tuple(n for n, weight in named.items() if id(weight.parameter) in own)
        several = shapes if isinstance(x, tuple) else ()
        size = (sum(map(_size, several)),) if several else shapes[0]
        found.append(Segment(name, counter.get_total_flops() // rows, size, held, several))
    _refuse_another(x, outputs, source)  # pyrefly: ignore[bad-argument-type]
    if lost := [name for name in named if not any(name in each.parameters or () for each in found)]:
        raise ConfigError(
            f"--model {source}: no segment is named after {lost[0]} or its module; name each segment after everything "
            f"that it uses, joined by +, as in 'patch+cls+pos' with the parameters cls and pos of the model itself."
        )
    return tuple(found)


def _shapes(x: object, name: str, rows: int, source: str) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes that a segment hands on, per example.

    Raises:
        ConfigError: It hands on neither a tensor nor a tuple of several, or their numbers are not real, or their first dim is not
            that of the examples.
    """
    kind = type(x).__name__
    if isinstance(x, tuple):
        kind = f"a tuple of {', '.join(type(each).__name__ for each in x) or 'nothing'}"
    is_handed = isinstance(x, torch.Tensor) or (
        isinstance(x, tuple) and len(x) > 1 and all(isinstance(each, torch.Tensor) for each in x)
    )
    if not is_handed:
        raise ConfigError(
            f"--model {source}: segment '{name}' returns {kind}; return a tensor or a plain tuple of several, as (x, skip), "
            f"which the next segment gets as its one argument."
        )
    tensors = tensors_of(x)
    odd = next((each for each in tensors if not each.is_floating_point()), None)
    if odd is not None:
        raise ConfigError(
            f"--model {source}: segment '{name}' returns {odd.dtype}; stages exchange only real numbers: return it as "
            f"x.to(h.dtype), or compute it again."
        )
    odd = next((each for each in tensors if not each.ndim or len(each) != rows), None)
    if odd is not None:
        raise ConfigError(
            f"--model {source}: segment '{name}' returns shape {list(odd.shape)} for {rows} examples; the first dim of each "
            f"tensor that it returns has to be that of the examples, which micro-batches split."
        )
    return tuple(tuple(each.shape[1:]) for each in tensors)


def _size(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def _refuse_another(x: Handed, outputs: torch.Tensor, source: str) -> None:
    """Refuses segments whose result is not the model's."""
    if isinstance(x, torch.Tensor) and x.shape == outputs.shape:
        if torch.allclose(x, outputs, rtol=_SAME, atol=_SAME):
            return
        apart = f"off by {(x - outputs).abs().max():.1e}"
    else:
        apart = "of another shape" if isinstance(x, torch.Tensor) else "a tuple"
    raise ConfigError(
        f"--model {source}: the segments, called in order, do not give the result of the forward pass; theirs is {apart}."
    )


def _parameters(module: nn.Module, path: str, segment: str, source: str) -> list[nn.Parameter]:
    """Returns the parameters that a path names: those of a module, or a single parameter.

    Raises:
        ConfigError: The path names neither.
    """
    modules = {name.replace(".", "/"): each for name, each in module.named_modules() if name}
    single = {name.replace(".", "/"): each for name, each in module.named_parameters(remove_duplicate=False)}
    if path in modules:
        return list(modules[path].parameters())
    if path not in single:
        raise unknown(
            f"module or parameter in the segment '{segment}'",
            path,
            [*modules, *(name for name in single if "/" not in name)],
            f"The segments of {source} name it.",
        )
    return [single[path]]
