"""The state of a recording in one process: hooks report what happens, and the session writes the record.

A step is what lies between two updates. It ends when the next pass begins, or when an optimizer updates a parameter again: so
optimizers of different parameters take one step together. Without an optimizer, it ends where weights have changed since.
"""

import weakref
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from samestep.common.steps.record import RecordedStep
from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.closures import ClosureCalls, Given, with_followed_closure
from samestep.torch_impl.recording.deleted import CalledModules
from samestep.torch_impl.recording.dtypes import Products
from samestep.torch_impl.recording.leaves import Leaves
from samestep.torch_impl.recording.objects import find_objects, is_only_built
from samestep.torch_impl.recording.own_gradients import OwnGradients
from samestep.torch_impl.recording.pieces import has_no_numbers, is_wrapped
from samestep.torch_impl.recording.statistics import Pending
from samestep.torch_impl.recording.step.counts import Counts
from samestep.torch_impl.recording.step.examples import Examples
from samestep.torch_impl.recording.step.first_weights import FirstWeights
from samestep.torch_impl.recording.step.losses import Roots, StepLosses
from samestep.torch_impl.recording.step.nesting import Nesting
from samestep.torch_impl.recording.step.scalars import StepScalars
from samestep.torch_impl.recording.step.targets import Targets
from samestep.torch_impl.recording.tensors import ParameterIds, is_rehearsed
from samestep.torch_impl.recording.watch import Watch


class Session:
    """Follows the script."""

    def __init__(self, recorder: Recorder) -> None:
        """Waits for the first pass. The recorder gets the steps."""
        self._recorder, self.examples, self._own = recorder, Examples(), OwnGradients(recorder)
        self.called, self.leaves, self.targets, self.losses = CalledModules(), Leaves(), Targets(), StepLosses()
        self._initial: FirstWeights | Watch | None = None
        self.watch: Watch | None = None
        self._is_update, self.has_optimizer, self._scale, self._of = False, False, None, ParameterIds()
        self._closures, self._inside, self.scalars, self.products = ClosureCalls(), Nesting(), StepScalars(), Products()
        self.counts = Counts(lambda: bool(self.stepped or (self._gradients and not self.has_optimizer)))
        self._begin_step()

    def _begin_step(self) -> None:
        self._gradients: list[Pending] = []  # to call `list[Pending]` takes ten times as long
        self._infinite, self.stepped, self.updated, self._is_replayed, self._own.passes = [], [], frozenset(), False, {}

    def before_call(self, module: nn.Module, given: Sequence[object] | None, keywords: Mapping[str, object]) -> None:
        """An outermost module is called in training mode.

        Args:
            module: The module.
            given: The arguments of the call; None if they are those of a method that calls the model in turn.
            keywords: The keywords of the call.
        """
        if id(module) not in self.called:
            trained = next((each for each in module.parameters() if each.requires_grad or is_wrapped(each)), None)
            if trained is None and given is not None:
                self.targets.give(self.examples.given(given, keywords))  # a loss
            if trained is None or has_no_numbers(trained) or is_only_built(module, given, keywords):
                return
            if isinstance(trained, nn.Parameter):  # and not what a function is given
                self.called.add(module)
                self._own.follow(module)
        self.begin_pass()
        if not self._is_replayed and given is not None:
            self.counts.passes.train()
            self.targets.follow(self.examples.add(given, keywords))

    def after_call(self, result: object, arguments: Sequence[object]) -> None:
        """An outermost module returned.

        Args:
            result: What it returned.
            arguments: The arguments of the call.
        """
        self.counts.passes.num_calls += 1
        self.examples.add_result(result, arguments)
        if self.watch is None:
            self.products.see_result(result)

    def before_backward(self, roots: Roots) -> None:
        """A backward pass begins."""
        self.begin_pass(roots)
        self._own.scale, self._scale = self._scale, None
        if not self._is_replayed:
            if seen := self.watch or self._initial:
                seen.written.see_pass(is_first=not self.losses.of_backward)
            self.losses.add(roots, self._own.scale)
            self.see_targets(roots)
        else:
            self._closures.see_backward(self.scalars)

    def before_grad(self, roots: Roots) -> None:
        """`torch.autograd.grad` is called for the gradients of parameters."""
        self.begin_pass(roots)
        self.losses.add(roots, is_backward=False)
        self.see_targets(roots)

    def see_targets(self, roots: Roots = ()) -> None:
        """Looks at what the losses of a pass were computed with."""
        self.targets.see(roots, calls := self.examples.taken(), bool(self.called or calls))

    def after_grad(self, found: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> None:
        """`torch.autograd.grad` returned a gradient for each parameter, by which a script without an optimizer updates it."""
        if self._is_manual() and self.watch is not None:
            self._gradients.append(self.watch.given(found))

    def after_backward(self) -> None:
        """A backward pass ended. Without an optimizer, nothing else shows when the gradients are there."""
        self._is_manual()
        self.take_again()

    def _is_manual(self) -> bool:
        """Returns whether the script has no optimizer; then what it trains is looked at from now on."""
        self.has_optimizer = self.has_optimizer or (self.watch is None and bool(find_objects()[1]))
        if is_manual := not self.has_optimizer and not self._inside.frames:
            (self.watch or self._begin_watch()).see_new(self.called.new(), self.called)
        return is_manual

    def take_again(self) -> None:
        """The gradients of a script without an optimizer are what they are now: after a pass, and after they were clipped."""
        if self.watch is None and isinstance(self._initial, FirstWeights):
            self._initial.see_gradients()
        elif not self.has_optimizer and self.watch is not None:
            self._gradients = [self.watch.gradients()]

    def begin_pass(self, roots: Roots = ()) -> None:
        """A forward or a backward pass begins, and ends the step before it."""
        if not self.called and not self.has_optimizer:
            self.leaves.follow([each for each, _ in roots])
        if self._initial is None:
            self._initial = FirstWeights(self._recorder, self.called.alive(), self.leaves.held())
        may_move = self.watch is None or not self.has_optimizer
        if not self._inside.frames and (self.stepped or (may_move and self._is_moved())):
            self.finish()

    def _begin_watch(self) -> Watch:
        self.counts.forget_schedules()
        self.watch = Watch(self._recorder, self.called.alive(), self.leaves.held(), self._initial, self.products.name)  # pyrefly: ignore[bad-argument-type]
        self._initial = self._initial and self.watch  # keeps nothing alive
        return self.watch

    def _is_moved(self) -> bool:
        """Returns whether a script without an optimizer, or one that it steps, has changed its weights since the last step."""
        if self.watch is None and isinstance(first := self._initial, FirstWeights) and (given := first.used_by_hand()):
            self._gradients = [given if (watch := self._begin_watch()).has_first else watch.gradients()]
            self.has_optimizer = False
        return not self.has_optimizer and self.watch is not None and bool(self._gradients) and self.watch.is_moved()

    def expect_update(self) -> None:
        """An optimizer that is not torch's was given gradients, so the script does use an optimizer."""
        self.has_optimizer, self._gradients = True, self._gradients if self.has_optimizer else []

    def before_update(
        self, optimizer: Optimizer, arguments: tuple[object, ...], keywords: dict[str, object]
    ) -> Given | None:
        """An optimizer is about to step; returns its arguments with a closure that is followed, if it has one.

        Args:
            optimizer: The optimizer.
            arguments: The arguments of its step, it first.
            keywords: The keywords of its step, it first.
        """
        is_outer = self._inside.enter()
        closure = arguments[1] if len(arguments) > 1 else keywords.get("closure")
        self._is_update = is_outer and closure is None and not is_rehearsed(optimizer, self._initial is not None)
        if not is_outer or (closure is None and not self._is_update):
            return None
        self._begin_update(optimizer, is_ahead=closure is not None and self._initial is None)
        if not callable(closure):
            self._take_of(optimizer)
            return None
        before, after = map(self._recorder.guarded, (self._closures.begin, self._after_closure))
        return with_followed_closure((arguments, keywords), closure, before, after)

    def after_update(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        self._inside.leave()
        if self.watch is not None:
            self.watch.written.see_update(bool(self._inside.frames))
        if not self._inside.frames and (self._is_update or not is_rehearsed(optimizer, self._initial is not None)):
            self.stepped.append(weakref.ref(optimizer))
            self._is_replayed = False
            self.examples.results.see_update()

    def skip(self, optimizer: Optimizer) -> None:
        """A gradient scaler leaves out the step of an optimizer."""
        self._begin_update(optimizer)
        self._take_of(optimizer)
        self.stepped.append(weakref.ref(optimizer))
        self._infinite.append(True)

    def _begin_update(self, optimizer: Optimizer, is_ahead: bool = False) -> None:
        self.has_optimizer = True
        if not (own := self._of(optimizer)).isdisjoint(self.updated):
            self.finish()
        self.updated = self.updated | own if self.updated else own
        if self.watch is not None:
            self.watch.see_new(own, self.called)
        elif not is_ahead:  # the first pass, which says what products are computed in
            self._begin_watch()
        self.scalars.see(optimizer)

    def _after_closure(self, optimizer: Optimizer) -> None:
        """The gradients are those of its first call. What an optimizer tries further is no part of the step."""
        if not self._is_replayed:
            self.scalars.see(optimizer, is_again=True)
            self._take_of(optimizer)
            self._is_replayed = True

    def scale_loss(self, scale: torch.Tensor) -> None:
        """The next backward pass begins with a scaled loss."""
        self._scale = scale.clone()  # pyrefly: ignore[bad-assignment]

    def finish(self) -> None:
        """Writes the step."""
        stats = self.watch.stats(self._gradients, self._own, self.updated) if self.watch and self._gradients else None
        (losses, zeroed), (targets, kinds) = self.losses.end_step(), self.targets.end_step()
        rows, arguments = self.examples.end_step()
        counts = self.counts.end_step() | kinds | (self.watch.written.end_step() if self.watch else {})
        scalars, is_skipped = self.scalars.end_step() | zeroed, any(map(bool, self._infinite))
        step = RecordedStep(self._recorder.number, losses, None, scalars, is_skipped, counts, stats, None, arguments)
        self._recorder.write(step, (rows, targets))
        self._begin_step()
        if self.called.has_deleted and self.watch is not None:
            self.watch.forget_deleted(self.called)

    def end(self) -> None:
        """The script ends, or the thread that is followed: writes the step that nothing came after."""
        if self.stepped or self._is_moved():
            self.finish()
        for each in (self.losses, self.targets, self.examples, self.scalars):
            each.forget()
        self.counts.end_step()
        self._begin_step()

    def _take_of(self, optimizer: Optimizer) -> None:
        """Takes the gradients that an optimizer is given; a fused one divides them by the scale itself."""
        watch = self.watch or self._begin_watch()
        scale, infinite = map(vars(optimizer).get, ("grad_scale", "found_inf"))
        self._infinite += () if infinite is None else (infinite.clone(),)
        if self._recorder.is_looking:
            self._gradients.append(watch.gradients(self._of(optimizer), scale))
