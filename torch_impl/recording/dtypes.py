"""The dtypes of a script: the dtype of its matrix products, and the float64 mode.

The float64 mode runs a script that was written for float32 in float64, without a changed line.
"""

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from samestep.common.steps.wrapping import Wrap, followed

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes that become float64."""
_FEW = (torch.float16, torch.bfloat16)  # before float64 mode renames them
_DRAWS = (
    "normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_.float",
    "bernoulli_.Tensor",
)  # fmt: skip
"""The operations that generate all random numbers, for `torch.randn`, initial weights, dropout and distributions."""
_SHIFTED = ("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor")  # their mean has float64's digits
_KERNELS = torch.library.Library("aten", "IMPL")  # kernels last as long as this object


def dtype_of_products(weight: torch.Tensor) -> torch.dtype:
    """Returns the dtype in which products with a weight are computed, which autocast may change."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


class Products:
    """The dtype in which a script computes products: the one with the fewest digits seen before the first update."""

    def __init__(self) -> None:
        """Starts with nothing seen."""
        self._seen = set[torch.dtype]()

    def follow(self, guard: Wrap, is_asked: Callable[[], bool]) -> None:
        """Follows every autocast that the script enters from now on.

        Args:
            guard: Wraps hooks so our errors do not reach the script.
            is_asked: Returns whether contexts entered now still count.
        """
        see = guard(self._see)
        after = lambda _, cast: see(cast.device) if is_asked() else None  # noqa: E731
        torch.autocast.__enter__ = followed(torch.autocast.__enter__, after)

    def _see(self, kind: str) -> None:
        if torch.is_grad_enabled() and torch.is_autocast_enabled(kind):
            self._seen.add(torch.get_autocast_dtype(kind))

    def see_result(self, result: object) -> None:
        """Notes the dtypes that a module returned; under mixed precision of FSDP or DeepSpeed, only these show it.

        Args:
            result: Tensors, possibly nested.
        """
        found = (each for each in tree_leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad)
        self._seen |= {each.dtype for each in found}

    @property
    def name(self) -> str:
        """The name of the dtype, such as "bfloat16"; "" if it has no fewer digits than float32."""
        few = self._seen.intersection(_FEW)
        return str(max(few, key=lambda each: torch.finfo(each).eps)).removeprefix("torch.") if few else ""


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Makes a context in which products of float32 matrices have full accuracy, even if the script allows TF32 or bf16."""
    coarse = [each for each in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul) if _is_coarse(each)]  # pyrefly: ignore[missing-attribute]
    before = [each.fp32_precision for each in coarse]
    for each in coarse:
        each.fp32_precision = "ieee"
    try:
        yield
    finally:
        for each, own in zip(coarse, before, strict=True):
            each.fp32_precision = own


def _is_coarse(products: object) -> bool:
    return getattr(products, "fp32_precision", "none") in ("tf32", "bf16")  # torch 2.9 and later have it


def use_float64() -> None:
    """Makes float64 the default and the meaning of all narrower dtype names, and turns autocast off.

    Inductor makes no kernels, because it identifies dtypes by name and would confuse them. Its graphs run without it.
    """
    torch._TorchCompileInductorWrapper.__call__ = lambda _, graph, inputs: graph  # pyrefly: ignore[bad-assignment]
    torch.set_default_dtype(torch.float64)
    for name in ("float32", "float", "float16", "half", "bfloat16"):
        setattr(torch, name, torch.float64)
    for name in ("float", "half", "bfloat16"):
        setattr(torch.Tensor, name, torch.Tensor.double)
        setattr(nn.Module, name, nn.Module.double)
    _draw_in_float32()
    torch.autocast.__init__ = _disabled(torch.autocast.__init__)
    batches = torch.utils.data.dataloader._BaseDataLoaderIter
    batches.__next__ = _widened(batches.__next__)
    nn.Module.__call__ = _with_wide_arguments(nn.Module.__call__)


def _draw_in_float32() -> None:
    """Makes the script's draws float32 draws that are cast. PyTorch draws other numbers in float64, and uses up more of them."""
    makers = dict.fromkeys(_DRAWS, _drawn_in_float32) | dict.fromkeys(_SHIFTED, _shifted)
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns that a kernel is replaced
        for (name, made), kind in itertools.product(makers.items(), ("CPU", "CUDA")):
            if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", kind):
                kernel = torch.library.get_kernel(f"aten::{name}", kind)
                _KERNELS.impl(name, made(kernel), kind, with_keyset=True)


def _drawn_in_float32(kernel: Any) -> Callable[..., torch.Tensor]:
    def draw(keys: Any, numbers: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
        if numbers.dtype != torch.float64:
            return kernel.call_boxed(keys, numbers, *arguments, **keywords)
        drawn = numbers.new_empty_strided(numbers.shape, numbers.stride(), dtype=_NARROW[0])  # strides fix the order
        given = [each.to(_NARROW[0]) if isinstance(each, torch.Tensor) else each for each in arguments]
        kernel.call_boxed(keys, drawn, *given, **keywords)
        return numbers.copy_(drawn)

    return draw


def _shifted(kernel: Any) -> Callable[..., torch.Tensor]:
    def normal(keys: Any, mean: Any, std: Any = 1.0, **keywords: Any) -> torch.Tensor:
        like = mean + std
        if like.dtype != torch.float64:
            return kernel.call_boxed(keys, mean, std, **keywords)
        return like.new_empty(like.shape).normal_(**keywords).mul_(std).add_(mean)

    return normal


def _disabled(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *rest: Any, **keywords: Any) -> None:
        original(self, device_type, None, False, *rest, **keywords)

    return init


def _widened(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def widened(*arguments: Any, **keywords: Any) -> Any:
        return _wide(original(*arguments, **keywords))

    return widened


def _with_wide_arguments(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(module: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(module, *arguments, **keywords)
        return original(module, *map(_wide, arguments), **{name: _wide(each) for name, each in keywords.items()})

    return call


def _wide(value: Any) -> Any:
    """Returns a batch with its floating-point tensors cast to float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in _NARROW else value
    if type(value) in (list, tuple):
        return type(value)(map(_wide, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a namedtuple, not a torch.Size
        return type(value)(*map(_wide, value))
    if type(value) is dict:
        return {name: _wide(each) for name, each in value.items()}
    if isinstance(value, Mapping):
        for name in value:
            value[name] = _wide(value[name])  # pyrefly: ignore
    return value
