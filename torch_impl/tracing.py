"""Records what every layer of a torch model computes: the calls of its modules and of the functions between them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from samestep.common.porting.model_trace import IS_FUNCTION, MOST_ELEMENTS
from samestep.common.porting.traced_call import TracedCall, numbered
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.layer import Stilled
from samestep.torch_impl.features.applied import dropped_by
from samestep.torch_impl.models.followed_modules import following

WHOLE = (nn.MultiheadAttention, nn.RNNBase)
"""Modules that compute with their children's parameters themselves; they are recorded, and their children are not."""
FUNCTIONS = {
    **{name: name for name in ("relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "leaky_relu", "elu", "softplus")},
    **{name: name for name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d", "flatten", "layer_norm")},
    "interpolate": "interpolate",
    **{"relu_": "relu", "_max_pool2d": "max_pool2d", "scaled_dot_product_attention": "attention"},
}
"""Name of a function -> the kind of its calls, which are recorded like layers, except within torch's own modules."""
_UNSEEN = ("__get__", "detach", "clone", "contiguous", "to", "double", "float")
"""Functions that return the values that they were given."""
SETTINGS = (
    *("eps", "momentum", "affine", "kernel_size", "stride", "padding", "dilation", "groups", "ceil_mode"),
    *("count_include_pad", "approximate", "negative_slope", "alpha", "num_heads", "batch_first", "padding_idx"),
    *("start_dim", "num_groups", "dim", "num_layers", "bidirectional", "normalized_shape", "max_val"),
)
"""The attributes of modules that determine what they compute."""


Call = TracedCall[torch.Tensor]


class LayerRecorder(TorchFunctionMode):
    """Records the calls of functions while it is entered, and those of the modules that it is told of."""

    def __init__(self, model: nn.Module) -> None:
        """Starts with nothing recorded.

        Args:
            model: The model whose modules are recorded.
        """
        super().__init__()
        self.calls: list[Call] = []
        self.started: list[str] = []
        self.stilled: dict[str, Stilled] = {}
        self.modules = dict(model.named_modules())
        self._stack: list[tuple[str, bool, bool]] = []
        self._inputs: list[list[torch.Tensor]] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        kind = FUNCTIONS.get(name)
        path, is_leaf, is_opened = self._stack[-1] if self._stack else ("", True, False)
        inputs = [each.detach().clone() for each in args if isinstance(each, torch.Tensor)] if kind else []
        output = function(*args, **(kwargs or {}))
        if kind and isinstance(output, torch.Tensor) and not is_leaf:
            self._record(f"{path}.{kind}()".lstrip("."), kind, {}, inputs, output)
        elif is_opened and name not in _UNSEEN:
            for each in output if isinstance(output, tuple | list) else (output,):
                if isinstance(each, torch.Tensor) and each.is_floating_point() and 1 < each.numel() <= MOST_ELEMENTS:
                    called = Call(
                        f"{path}.{name.strip('_')}()".lstrip("."), name.strip("_"), {IS_FUNCTION: True}, [], each
                    )
                    self.calls.append(dataclasses.replace(called, output=each.detach().clone()))
        return output

    def drew(self, function: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]) -> None:
        """Records, in order among the calls, a drawing function that was replaced and returns its input.

        Args:
            function: The function.
            args: Its arguments.
            named: Its keyword arguments.
        """
        path, _, is_opened = self._stack[-1] if self._stack else ("", True, False)
        stilled = dropped_by(function, args, named)
        if stilled is None or not is_opened:
            return
        known = FUNCTIONS.get(function.__name__)  # it is recorded like a layer
        name = numbered(f"{path}.{known or stilled.feature}()".lstrip("."), self.stilled)
        self.stilled[name] = stilled
        given = args[0] if args else named.get("input")
        if known is None and isinstance(given, torch.Tensor):
            self.calls.append(Call(name, stilled.feature, {IS_FUNCTION: False}, [], given.detach().clone()))

    def starts(self, path: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Notes that a module is called.

        Args:
            path: The path of the module.
            args: The arguments of the call.
            kwargs: Its keyword arguments.
        """
        module = self.modules[path]
        is_leaf = isinstance(module, WHOLE) or not any(True for _ in module.children())
        is_own = not type(module).__module__.startswith("torch.nn")
        around = any(is_whole and not is_seen for _, is_whole, is_seen in self._stack)
        self._stack.append((path, is_leaf, (not is_leaf or is_own) and not around))
        if path not in self.started:
            self.started.append(path)
        given = [*args, *kwargs.values()]
        self._inputs.append([each.detach().clone() for each in given if isinstance(each, torch.Tensor)])

    def ends(self, path: str, args: object, kwargs: object, output: object) -> None:
        """Records the call of a module that has ended.

        Args:
            path: The path of the module.
            args: Ignored.
            kwargs: Ignored.
            output: What the call returned.
        """
        _, is_leaf, _ = self._stack.pop()
        inputs = self._inputs.pop()
        first = output[0] if isinstance(output, tuple) else output
        if is_leaf and isinstance(first, torch.Tensor) and not any(outer for _, outer, _ in self._stack):
            module = self.modules[path]
            self._record(path, type(module).__name__, settings(module), inputs, first)

    def _record(
        self, name: str, kind: str, about: Mapping[str, object], inputs: list[torch.Tensor], output: torch.Tensor
    ) -> None:
        call = Call(name, kind, about, inputs, output.detach().clone())
        if output.requires_grad:
            output.register_hook(lambda gradient: setattr(call, "gradient", gradient.detach().clone()))
        self.calls.append(call)


def settings(module: nn.Module) -> dict[str, object]:
    """Returns the attributes of a module that determine what it computes, in types that JSON can hold."""
    found = {name: getattr(module, name) for name in SETTINGS if name in vars(module)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


@contextlib.contextmanager
def recording(model: nn.Module) -> Iterator[LayerRecorder]:
    """Makes a context in which the calls of a model are recorded.

    Args:
        model: The model whose modules are recorded.
    """
    recorder = LayerRecorder(model)
    calls = following(recorder.modules.items(), recorder.starts, recorder.ends)
    with calls, recorder, DRAWS.watched(recorder.drew):
        yield recorder
