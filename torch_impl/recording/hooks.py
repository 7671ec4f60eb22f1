"""Follows a script by wrapping functions of torch and by the hooks that torch offers."""

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack as clear_stack
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from samestep.common.steps.recording import Recorder
from samestep.common.steps.wrapping import preceded
from samestep.torch_impl.recording.functional import follow_functional, unobserved
from samestep.torch_impl.recording.gradient_transforms import follow_transforms
from samestep.torch_impl.recording.pieces import has_no_numbers
from samestep.torch_impl.recording.places import follow_join
from samestep.torch_impl.recording.session import Session
from samestep.torch_impl.recording.step.directional import DifferentiatedLoss
from samestep.torch_impl.recording.step.evaluated import EvaluatedCalls
from samestep.torch_impl.recording.step.loaders import follow_loaders
from samestep.torch_impl.recording.step.losses import Roots, listed, roots_of
from samestep.torch_impl.recording.tensors import is_method_run
from samestep.torch_impl.recording.thread import FollowedThread

P = ParamSpec("P")
T = TypeVar("T")


class Hooks:
    """The hooks through which a process is followed."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        """Prepares the hooks; `install` sets them.

        Args:
            session: The session to report to.
            recorder: Keeps our errors from the script.
        """
        self._session, self._recorder = session, recorder
        self._is_inside = False  # inside a module or a backward pass, which may call modules again
        self._redirecting: nn.Module | None = None  # the outermost module, while a method other than its forward runs
        self._evaluated = EvaluatedCalls(session, recorder)
        self._thread = FollowedThread(recorder.guarded(session.end), recorder.note)

    def _guard(self, function: Callable[P, T]) -> Callable[P, T | None]:
        """Returns a hook that never ends the script, and that torch.compile does not trace if it compiles a whole step."""
        recorder, thread, guarded = self._recorder, self._thread, self._recorder.guarded(function)
        apart = _disable_dynamo(lambda *own, **named: guarded(*own, **named) if thread.is_here() else None)
        is_within_graph, get_ident = torch.compiler.is_dynamo_compiling, threading.get_ident
        without_subclasses = torch._C.DisableTorchFunctionSubclass
        num_functions, num_dispatches = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack

        @functools.wraps(function)
        def hook(*args: P.args, **kwargs: P.kwargs) -> T | None:
            if is_within_graph():
                return apart(*args, **kwargs)  # takes longer than most hooks
            if recorder.is_ended or (get_ident() != thread.ident and not thread.is_here()):
                return None
            try:
                if num_functions() or num_dispatches():  # a mode of the script would see each operation
                    with unobserved():
                        return function(*args, **kwargs)
                with without_subclasses():  # tensor classes may count operations as well, or refuse them
                    return function(*args, **kwargs)
            except BaseException as error:
                if recorder.fail(error):
                    raise
            return None

        return hook

    def install(self) -> None:
        """Installs every hook into torch and its optimizers."""
        session, guard = self._session, self._guard
        nn.Module.__call__ = self.follow_calls(nn.Module.__call__)
        torch.autograd.backward = self._follow_backward(torch.autograd.backward)
        torch.autograd.grad = self._follow_grad(torch.autograd.grad)
        before, after, thread = guard(session.before_update), guard(session.after_update), self._thread
        register_optimizer_step_pre_hook(lambda *each: before(*each) if thread.train() else None)  # pyrefly: ignore[bad-argument-type]
        register_optimizer_step_post_hook(lambda optimizer, arguments, keywords: after(optimizer))
        follow_transforms(session, guard)
        follow_functional(session, guard, self._thread)
        follow_join(guard(session.end))
        for kind in (torch.optim.Optimizer, nn.Module):
            kind.zero_grad = self._follow_zeroing(kind.zero_grad)
        schedule = torch.optim.lr_scheduler.LRScheduler
        schedule.step = preceded(schedule.step, guard(lambda each, *_, **__: session.counts.add_schedule(each)))
        load = guard(lambda *_, **__: session.watch and session.watch.written.see_load())
        nn.Module.load_state_dict = preceded(nn.Module.load_state_dict, load)
        written = preceded(nn.utils.vector_to_parameters, load)
        nn.utils.vector_to_parameters = nn.utils.convert_parameters.vector_to_parameters = written
        session.products.follow(guard, lambda: session.watch is None)
        follow_loaders(session.counts.passes, session.targets.batches, guard)

    def follow_calls(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the method that calls a module.

        Args:
            original: The method.
        """
        session, evaluated, thread = self._session, self._evaluated, self._thread
        evaluate, after = self._guard(evaluated.see), self._guard(session.after_call)
        is_within_graph, is_compiling = torch.compiler.is_dynamo_compiling, torch.compiler.is_compiling
        trace, are_transforms_active = torch._C._get_tracing_state, torch._C._are_functorch_transforms_active
        get_ident, is_grad_enabled = threading.get_ident, torch.is_grad_enabled

        @self._guard
        def before(module: nn.Module, arguments: tuple[object, ...] | None, keywords: dict[str, object]) -> None:
            evaluated.before_training(module)
            session.before_call(module, arguments, keywords)

        @functools.wraps(original)
        def call(module: nn.Module, *arguments: Any, **keywords: Any) -> Any:
            if is_within_graph() or self._is_inside:  # true of most calls; `is_compiling` would take twice as long
                return original(module, *arguments, **keywords)
            is_last = get_ident() == thread.ident
            # `torch.jit.trace` would record what a hook computes.
            if is_compiling() or trace() is not None or not (is_last or thread.is_here()):
                return original(module, *arguments, **keywords)
            is_redirected, outer = is_method_run(module), self._redirecting
            root, given = outer or module, None if is_redirected else arguments
            if not is_grad_enabled() or (is_redirected and outer is not None):
                pass
            elif not root.training and not _has_training(root):
                evaluate(root, given, keywords)
            elif is_last or thread.take():
                (clear_stack()(before) if are_transforms_active() else before)(root, given, keywords)
            self._is_inside, self._redirecting = not is_redirected, root if is_redirected else outer
            try:
                result = original(module, *arguments, **keywords)
            finally:
                self._is_inside, self._redirecting = False, outer
            if not is_redirected:
                after(result, arguments)
            return result

        return call

    def _before_pass(self, follow: Callable[[Roots], None]) -> Callable[[Roots], None]:
        @self._guard
        def before(roots: Roots) -> None:
            self._evaluated.before_backward()
            follow(roots)

        return before

    def _follow_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session = self._session
        before, after = self._before_pass(session.before_backward), self._guard(session.after_backward)

        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *arguments: Any, **keywords: Any) -> Any:
            if torch.compiler.is_compiling() or self._is_inside or not self._thread.train():
                return original(tensors, grad_tensors, *arguments, **keywords)
            if grad_tensors is not None or not isinstance(tensors, torch.Tensor):
                tensors, grad_tensors = _kept(tensors), _kept(grad_tensors)
            roots = roots_of(tensors, grad_tensors)
            for each, _ in roots:
                if has_no_numbers(each):
                    return original(tensors, grad_tensors, *arguments, **keywords)
            before(roots)
            self._is_inside = True
            try:
                return original(tensors, grad_tensors, *arguments, **keywords)
            finally:
                self._is_inside = False
                if session.watch is None or not session.has_optimizer:  # hooks take time
                    after()

        return backward

    def _follow_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        before, after = self._before_pass(self._session.before_grad), self._guard(self._session.after_grad)
        see, loss_of = self._guard((differentiated := DifferentiatedLoss()).see), self._guard(differentiated.of)

        @functools.wraps(original)
        def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *arguments: Any, **keywords: Any) -> Any:
            is_within, is_again = torch.compiler.is_compiling() or self._is_inside, bool(keywords.get("create_graph"))
            outputs, inputs, grad_outputs = _kept(outputs), _kept(inputs), _kept(grad_outputs)
            parameters, is_bare = listed(inputs), not self._session.called
            are_trained = all(
                isinstance(each, nn.Parameter) or (is_bare and isinstance(each, torch.Tensor) and each.is_leaf)
                for each in parameters
            )
            if is_within or not are_trained or any(map(has_no_numbers, parameters)) or not self._thread.train():
                return original(outputs, inputs, grad_outputs, *arguments, **keywords)
            roots = roots_of(outputs, grad_outputs)
            known = loss_of(roots)
            if known is None and not is_again:
                before(roots)
            elif known:
                before(known[0])
                after(known[1])
            found = original(outputs, parameters, grad_outputs, *arguments, **keywords)
            pairs = [*zip(parameters, found, strict=True)]
            if known is None and is_again:
                is_manual = not self._session.has_optimizer and all(
                    isinstance(each, nn.Parameter) for each in parameters
                )
                see(roots if is_manual else (), pairs)
            elif known is None:
                after(pairs)
            return found

        return grad

    def _follow_zeroing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        session, before = self._session, self._evaluated.before_zeroing

        @self._guard
        def zeroed(*_: object, **__: object) -> None:
            before()
            if not session.stepped:
                session.losses.zero()
            elif session.watch is not None:
                session.watch.see_strays(session.updated)

        return preceded(original, zeroed)


def _has_training(module: nn.Module) -> bool:
    """Returns whether any part of a module is in training mode; after validation, Lightning leaves DDP's wrapper in eval."""
    return any(each.training for each in module.modules())


def _kept(given: Any) -> Any:
    """Returns the tensors that a script passes in a form that can be iterated twice, as they may come from a generator."""
    return [*given] if not isinstance(given, torch.Tensor) and isinstance(given, Iterator) else given
