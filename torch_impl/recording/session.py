"""The state of a recording in one process; hooks report what happens, and the session writes the record.

A step lasts from one update to the next. It ends when the next pass begins, or when an optimizer updates a parameter again, so
optimizers of different parameters take one step together. Without an optimizer, it ends when the weights have changed.
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
    """Collects what hooks report about a script, and writes its steps."""

    def __init__(self, recorder: Recorder) -> None:
        """Waits for the first pass; steps are written to the recorder."""
        self._recorder, self.examples, self._own = recorder, Examples(), OwnGradients(recorder)
        self.called, self.leaves, self.targets, self.losses = CalledModules(), Leaves(), Targets(), StepLosses()
        self._initial: FirstWeights | Watch | None = None
        self.watch: Watch | None = None
        self._is_update, self.has_optimizer, self._scale, self._of = False, False, None, ParameterIds()
        self._closures, self._inside, self.scalars, self.products = ClosureCalls(), Nesting(), StepScalars(), Products()
        self.counts = Counts(lambda: bool(self.stepped or (self._gradients and not self.has_optimizer)))
        self._begin_step()

    def _begin_step(self) -> None:
        self._gradients: list[Pending] = []  # calling `list[Pending]` would take ten times as long
        self._infinite, self.stepped, self.updated, self._is_replayed, self._own.passes = [], [], frozenset(), False, {}

    def before_call(self, module: nn.Module, given: Sequence[object] | None, keywords: Mapping[str, object]) -> None:
        """Handles the call of an outermost module in training mode.

        Args:
            module: The module.
            given: The arguments of the call; None if they are those of another method, which then calls the model.
            keywords: The keyword arguments of the call.
        """
        if id(module) not in self.called:
            trained = next((each for each in module.parameters() if each.requires_grad or is_wrapped(each)), None)
            if trained is None and given is not None:
                self.targets.give(self.examples.given(given, keywords))  # a loss
            if trained is None or has_no_numbers(trained) or is_only_built(module, given, keywords):
                return
            if isinstance(trained, nn.Parameter):  # not a tensor that a function was given
                self.called.add(module)
                self._own.follow(module)
        self.begin_pass()
        if not self._is_replayed and given is not None:
            self.counts.passes.train()
            self.targets.follow(self.examples.add(given, keywords))

    def after_call(self, result: object, arguments: Sequence[object]) -> None:
        """Handles the return of an outermost module.

        Args:
            result: What it returned.
            arguments: The arguments of the call.
        """
        self.counts.passes.num_calls += 1
        self.examples.add_result(result, arguments)
        if self.watch is None:
            self.products.see_result(result)

    def before_backward(self, roots: Roots) -> None:
        """Handles the start of a backward pass."""
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
        """Handles a call of `torch.autograd.grad` for the gradients of parameters."""
        self.begin_pass(roots)
        self.losses.add(roots, is_backward=False)
        self.see_targets(roots)

    def see_targets(self, roots: Roots = ()) -> None:
        """Looks at the tensors with which the losses of a pass were computed."""
        self.targets.see(roots, calls := self.examples.taken(), bool(self.called or calls))

    def after_grad(self, found: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> None:
        """Handles the gradients that `torch.autograd.grad` returned, from which a script without an optimizer updates."""
        if self._is_manual() and self.watch is not None:
            self._gradients.append(self.watch.given(found))

    def after_backward(self) -> None:
        """Handles the end of a backward pass; without an optimizer, only this shows when the gradients are complete."""
        self._is_manual()
        self.take_again()

    def _is_manual(self) -> bool:
        """Returns whether the script has no optimizer; if so, starts watching what it trains."""
        self.has_optimizer = self.has_optimizer or (self.watch is None and bool(find_objects()[1]))
        if is_manual := not self.has_optimizer and not self._inside.frames:
            (self.watch or self._begin_watch()).see_new(self.called.new(), self.called)
        return is_manual

    def take_again(self) -> None:
        """Takes the current gradients of a script without an optimizer, after a pass or after clipping."""
        if self.watch is None and isinstance(self._initial, FirstWeights):
            self._initial.see_gradients()
        elif not self.has_optimizer and self.watch is not None:
            self._gradients = [self.watch.gradients()]

    def begin_pass(self, roots: Roots = ()) -> None:
        """Handles the start of a forward or backward pass, which ends the previous step."""
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
        self._initial = self._initial and self.watch  # does not keep the first weights alive
        return self.watch

    def _is_moved(self) -> bool:
        """Returns whether a script that uses no optimizer to update has changed its weights since the last step."""
        if self.watch is None and isinstance(first := self._initial, FirstWeights) and (given := first.used_by_hand()):
            self._gradients = [given if (watch := self._begin_watch()).has_first else watch.gradients()]
            self.has_optimizer = False
        return not self.has_optimizer and self.watch is not None and bool(self._gradients) and self.watch.is_moved()

    def expect_update(self) -> None:
        """Handles gradients given to an optimizer that is not torch's, which shows that the script uses an optimizer."""
        self.has_optimizer, self._gradients = True, self._gradients if self.has_optimizer else []

    def before_update(
        self, optimizer: Optimizer, arguments: tuple[object, ...], keywords: dict[str, object]
    ) -> Given | None:
        """Handles the start of an optimizer's step; returns its arguments with the closure wrapped, if it has a closure.

        Args:
            optimizer: The optimizer.
            arguments: The positional arguments of its step, with the optimizer first.
            keywords: The keyword arguments of its step.
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
        """Handles the end of an optimizer's step."""
        self._inside.leave()
        if self.watch is not None:
            self.watch.written.see_update(bool(self._inside.frames))
        if not self._inside.frames and (self._is_update or not is_rehearsed(optimizer, self._initial is not None)):
            self.stepped.append(weakref.ref(optimizer))
            self._is_replayed = False
            self.examples.results.see_update()

    def skip(self, optimizer: Optimizer) -> None:
        """Handles a step of an optimizer that a gradient scaler skips."""
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
        elif not is_ahead:  # the first pass shows in which dtype products are computed
            self._begin_watch()
        self.scalars.see(optimizer)

    def _after_closure(self, optimizer: Optimizer) -> None:
        """Handles the end of a closure's call. Only the gradients of the first call are part of the step."""
        if not self._is_replayed:
            self.scalars.see(optimizer, is_again=True)
            self._take_of(optimizer)
            self._is_replayed = True

    def scale_loss(self, scale: torch.Tensor) -> None:
        """Notes that the next backward pass begins with a scaled loss."""
        self._scale = scale.clone()  # pyrefly: ignore[bad-assignment]

    def finish(self) -> None:
        """Writes the current step, and begins the next."""
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
        """Writes the last step, when the script or the followed thread ends."""
        if self.stepped or self._is_moved():
            self.finish()
        for each in (self.losses, self.targets, self.examples, self.scalars):
            each.forget()
        self.counts.end_step()
        self._begin_step()

    def _take_of(self, optimizer: Optimizer) -> None:
        """Takes the gradients that an optimizer is given; a fused optimizer divides them by the scale itself."""
        watch = self.watch or self._begin_watch()
        scale, infinite = map(vars(optimizer).get, ("grad_scale", "found_inf"))
        self._infinite += () if infinite is None else (infinite.clone(),)
        if self._recorder.is_looking:
            self._gradients.append(watch.gradients(self._of(optimizer), scale))
