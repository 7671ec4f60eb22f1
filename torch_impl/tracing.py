"""Records what every layer of a torch model computes: the calls of its modules, and of the functions between them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from samestep.common.workload.models.layer import LayerTensor, ParameterLayer
from samestep.torch_impl import weights
from samestep.torch_impl.models.inputs import Inputs

WHOLE = (nn.MultiheadAttention, nn.RNNBase)
"""Modules that compute with their children's parameters themselves: they are recorded, their children are not."""
FUNCTIONS = {
    **{name: name for name in ("relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "leaky_relu", "elu", "softplus")},
    **{name: name for name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d", "flatten", "layer_norm")},
    **{"relu_": "relu", "_max_pool2d": "max_pool2d", "scaled_dot_product_attention": "attention"},
}
"""Name of a function -> the kind of its calls. What a module calls itself is not recorded."""
SETTINGS = (
    *("eps", "momentum", "affine", "kernel_size", "stride", "padding", "dilation", "groups", "ceil_mode"),
    *("count_include_pad", "approximate", "negative_slope", "alpha", "num_heads", "batch_first", "padding_idx"),
    *("start_dim", "num_groups", "dim", "num_layers", "bidirectional", "normalized_shape"),
)
"""The attributes of modules that decide what they compute."""
_RECURRENT = {
    "weight_ih": ("kernel", (1, 0)),
    "weight_hh": ("recurrent", (1, 0)),
    "bias_ih": ("bias", (0,)),
    "bias_hh": ("second_bias", (0,)),
}
_ROLES = {"weight": "kernel", "bias": "bias"}


@dataclasses.dataclass(eq=False)
class Call:
    """One call of a module or of a function.

    Attributes:
        name: The path of the module; of a function, where it was called.
        kind: The name of the class or of the function.
        settings: What decides the result.
        inputs: Copies of the tensors that it was given.
        output: A copy of its first result.
        gradient: The gradient of the loss by its first result, once the backward pass has come by.
    """

    name: str
    kind: str
    settings: Mapping[str, object]
    inputs: list[torch.Tensor]
    output: torch.Tensor
    gradient: torch.Tensor | None = None


class LayerRecorder(TorchFunctionMode):
    """Records the calls of a model while it is entered."""

    def __init__(self, model: nn.Module) -> None:
        """Records nothing yet.

        Args:
            model: Whose modules are recorded.
        """
        super().__init__()
        self.calls: list[Call] = []
        self.started: list[str] = []
        self._model = model
        self._stack: list[tuple[str, bool]] = []
        self._inputs: list[list[torch.Tensor]] = []
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for path, module in self._model.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._starts(path), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._ends(path), with_kwargs=True))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for handle in self._handles:
            handle.remove()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        inputs = [each.detach().clone() for each in args if isinstance(each, torch.Tensor)]
        output = function(*args, **(kwargs or {}))
        kind = FUNCTIONS.get(getattr(function, "__name__", ""))
        if kind and isinstance(output, torch.Tensor) and self._stack and not self._stack[-1][1]:
            path = self._stack[-1][0]
            self._record(f"{path}.{kind}()".lstrip("."), kind, {}, inputs, output)
        return output

    def _starts(self, path: str) -> Callable[..., None]:
        def start(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            is_leaf = isinstance(module, WHOLE) or not any(True for _ in module.children())
            self._stack.append((path, is_leaf))
            if path not in self.started:
                self.started.append(path)
            given = [*args, *kwargs.values()]
            self._inputs.append([each.detach().clone() for each in given if isinstance(each, torch.Tensor)])

        return start

    def _ends(self, path: str) -> Callable[..., None]:
        def end(module: nn.Module, args: object, kwargs: object, output: object) -> None:
            _, is_leaf = self._stack.pop()
            inputs = self._inputs.pop()
            first = output[0] if isinstance(output, tuple) else output
            if is_leaf and isinstance(first, torch.Tensor) and not any(outer for _, outer in self._stack):
                self._record(path, type(module).__name__, settings(module), inputs, first)

        return end

    def _record(
        self, name: str, kind: str, about: Mapping[str, object], inputs: list[torch.Tensor], output: torch.Tensor
    ) -> None:
        call = Call(name, kind, about, inputs, output.detach().clone())
        if output.requires_grad:
            output.register_hook(lambda gradient: setattr(call, "gradient", gradient.detach().clone()))
        self.calls.append(call)


def settings(module: nn.Module) -> dict[str, object]:
    """Returns the attributes of a module that decide what it computes, as JSON can hold them."""
    found = {name: getattr(module, name) for name in SETTINGS if name in vars(module)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


@contextlib.contextmanager
def recording(model: nn.Module) -> Iterator[LayerRecorder]:
    """Records the calls of a model.

    Args:
        model: Whose modules are recorded.
    """
    with LayerRecorder(model) as recorder:
        yield recorder


def describe_layers(model: nn.Module, inputs: Inputs) -> tuple[ParameterLayer, ...]:
    """Returns the layers of a model that hold parameters, in the order in which some inputs reach them.

    Args:
        model: The model.
        inputs: A few examples.
    """
    with torch.no_grad(), recording(model) as recorder:
        model(inputs)
    return find_layers(model, recorder.started)


def find_layers(model: nn.Module, started: list[str]) -> tuple[ParameterLayer, ...]:
    """Returns the layers of a model that hold parameters, in the order of execution.

    Args:
        model: The model.
        started: The paths of its modules in the order in which they were first called.
    """
    modules = dict(model.named_modules())
    order = {path: number for number, path in enumerate(started)}
    neutral = {id(weight.parameter): (name, weight) for name, weight in weights.named_weights(model).items()}
    found: list[tuple[int, ParameterLayer]] = []
    for path, module in modules.items():
        whole = next((outer for outer in _outer(path) if isinstance(modules[outer], WHOLE)), path)
        place = order.get(path, order.get(whole, len(order)))
        held = {
            name: LayerTensor(
                neutral[id(p)][0], f"{path}.{name}".lstrip("."), tuple(p.shape), neutral[id(p)][1].permutation
            )
            for name, p in module.named_parameters(recurse=False)
            if id(p) in neutral
        }
        found += [(place, layer) for layer in _layers(path, whole, module, held)]
        for p in module.parameters(recurse=False):
            neutral.pop(id(p), None)  # a tied one belongs to its first layer
    return tuple(layer for _, layer in sorted(found, key=lambda pair: pair[0]))


def _outer(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts))]


def _layers(path: str, call: str, module: nn.Module, held: dict[str, LayerTensor]) -> Iterator[ParameterLayer]:
    """Yields the layers of one module: one for a module whose parameters have roles, else one for each parameter."""
    kind, used = type(module).__name__, set[str]()
    if isinstance(module, nn.RNNBase):
        for number in range(module.num_layers):
            for suffix in ("", "_reverse"):
                names = {f"{stem}_l{number}{suffix}": role for stem, (role, _) in _RECURRENT.items()}
                params = {role: held[name] for name, role in names.items() if name in held}
                if params:
                    yield ParameterLayer(name=f"{path}.l{number}{suffix}", kind=kind, call=call, params=params)
        return
    if isinstance(module, nn.MultiheadAttention):
        params = {role: held[f"in_proj_{name}"] for name, role in _ROLES.items() if f"in_proj_{name}" in held}
        used |= {f"in_proj_{name}" for name in _ROLES}
        if params:
            yield ParameterLayer(name=path, kind=kind, call=call, params=params)
    known = {name: role for name, role in _roles(held).items() if name in held}
    if known:
        params = {role: held[name] for name, role in known.items()}
        yield ParameterLayer(name=path, kind=kind, call=call, params=params, buffers=_buffers(path, module))
    for name in held.keys() - known.keys() - used:
        yield ParameterLayer(
            name=f"{path}.{name}".lstrip("."), kind="Parameter", call=path, params={"value": held[name]}
        )


def _roles(held: Mapping[str, LayerTensor]) -> dict[str, str]:
    """Torch's names -> roles: those that the neutral names have, else a weight is a kernel."""
    known = {"kernel", "table", "scale", "bias"}
    roles = {name: last for name, each in held.items() if (last := each.neutral.rpartition("/")[2]) in known}
    return roles | {name: role for name, role in _ROLES.items() if name in held and name not in roles}


def _buffers(path: str, module: nn.Module) -> dict[str, LayerTensor]:
    named = dict(module.named_buffers(recurse=False))
    return {
        name: LayerTensor(
            f"{path.replace('.', '/')}/{name}".lstrip("/"), f"{path}.{name}".lstrip("."), tuple(b.shape), (0,)
        )
        for name, b in named.items()
        if name in ("running_mean", "running_var")
    }
