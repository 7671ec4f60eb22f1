"""Follows scripts that train tensors outside modules: `torch.func.grad`, and modules called with other parameters.

Within a transformation of torch.func, tensors are wrapped, and so are the results of computing with them. So hooks leave the
transformation for a moment and look into the wrappers.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch._functorch import eager_transforms
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters, temporarily_clear_interpreter_stack
from torch.nn.utils import stateless
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from samestep.common.steps.wrapping import Wrap, preceded
from samestep.torch_impl.recording.pieces import is_wrapped, unwrapped
from samestep.torch_impl.recording.session import Session
from samestep.torch_impl.recording.thread import FollowedThread

_HERE = contextlib.nullcontext()
_PLAIN = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


def outside() -> contextlib.AbstractContextManager[object]:
    """Returns a context that leaves the active transformations of torch.func.

    It does not query their stack if there are none, because that creates one, which autograd then copies for each node.
    """
    return temporarily_clear_interpreter_stack() if torch._C._are_functorch_transforms_active() else _HERE


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Makes a context whose operations are hidden from the modes of the script, which might count or print them."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def follow_functional(session: Session, guard: Wrap, thread: FollowedThread) -> None:
    """Follows functions that compute gradients of functions, or call modules with parameters that they do not hold.

    Args:
        session: The session to report to.
        guard: Makes a function a hook.
        thread: The thread that is followed.
    """
    original = eager_transforms.grad_and_value_impl
    eager_transforms.grad_and_value_impl = _differentiated(original, session, guard, thread)
    stateless._functional_call = _called(stateless._functional_call, session, guard)


def _differentiated(
    original: Callable[..., Any], session: Session, guard: Wrap, thread: FollowedThread
) -> Callable[..., Any]:
    @guard
    def before(named: Mapping[str, torch.Tensor], given: Sequence[torch.Tensor]) -> None:
        session.leaves.note(named)
        session.begin_pass()
        session.targets.give(given)

    @guard
    def after(found: Sequence[tuple[torch.Tensor, torch.Tensor]], loss: torch.Tensor) -> None:
        session.losses.add([(loss, None)], is_backward=False)
        session.see_targets()
        session.after_grad(found)

    @functools.wraps(original)
    def differentiate(func: Any, argnums: Any, has_aux: bool, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or _is_nested() or not thread.train():
            return original(func, argnums, has_aux, args, kwargs)
        wanted = [argnums] if isinstance(argnums, int) else [*argnums]
        wanted = [each % len(args) for each in wanted if each < len(args)]
        with outside():
            named = _named(func, [(each, args[each]) for each in wanted])
            rest = [each for place, each in enumerate(args) if place not in wanted]
            before(named, [unwrapped(each) for each in tree_leaves([rest, kwargs]) if isinstance(each, torch.Tensor)])
        gradients, output = found = original(func, argnums, has_aux, args, kwargs)
        with outside():
            flat = [each for each in tree_leaves(gradients) if isinstance(each, torch.Tensor)]
            own = [(each, unwrapped(gradient)) for each, gradient in zip(named.values(), flat, strict=False)]
            num = max((gradient.ndim - each.ndim for each, gradient in own), default=0)
            loss = _mean(unwrapped(output[0] if has_aux else output), num).sum()  # summed over stacked models
            after([(each, _mean(gradient, gradient.ndim - each.ndim)) for each, gradient in own], loss)
        return found

    return differentiate


def _called(original: Callable[..., Any], session: Session, guard: Wrap) -> Callable[..., Any]:
    @guard
    def note(parameters: Mapping[str, torch.Tensor]) -> None:
        session.leaves.note({name: each for name, each in parameters.items() if _is_trained(each)})

    def before(module: nn.Module, parameters_and_buffers: Any, *_: object, **__: object) -> None:
        if not torch.compiler.is_compiling():
            note(parameters_and_buffers)

    return preceded(original, before)


def _is_nested() -> bool:
    """Returns whether a gradient of a gradient is computed; a gradient per example does not count as one."""
    return any(each.key() != torch._C._functorch.TransformType.Vmap for each in retrieve_all_functorch_interpreters())


def _is_trained(tensor: object) -> bool:
    """Returns whether an object is a plain tensor that may be trained.

    A tensor class with its own `__torch_function__` is a wrapper that may refuse queries, such as torch's expanded weights.
    """
    if not isinstance(tensor, torch.Tensor) or is_wrapped(tensor):
        return False
    own = type(tensor).__torch_function__
    is_plain = own is torch._C._disabled_torch_function_impl or getattr(own, "__func__", None) is _PLAIN
    return is_plain and tensor.requires_grad and tensor.is_leaf


def _named(func: Callable[..., Any], arguments: Sequence[tuple[int, Any]]) -> dict[str, torch.Tensor]:
    """Returns the tensors in some arguments of a function, named by their path and, if several are given, by the argument."""
    try:
        names = [*inspect.signature(func).parameters]
    except (TypeError, ValueError):
        names = []
    found: dict[str, torch.Tensor] = {}
    for place, value in arguments:
        name = names[place] if place < len(names) else f"arguments.{place}"
        prefix = "" if isinstance(value, Mapping) and len(arguments) == 1 else name
        found |= {path: unwrapped(each) for path, each in _paths(prefix, value)}
    return found


def _paths(prefix: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors in a value with their paths, in the order of `tree_leaves`."""
    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, Mapping | list | tuple):
        for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _paths(f"{prefix}.{key}" if prefix else str(key), each)


def _mean(tensor: torch.Tensor, num_dims: int) -> torch.Tensor:
    """Returns the mean over the first dims, along which examples have a loss and a gradient each; there may be none."""
    return tensor.mean(tuple(range(min(num_dims, tensor.ndim)))) if num_dims > 0 and tensor.ndim else tensor
