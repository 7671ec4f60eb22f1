"""Detects models that are trained in evaluation mode, for example because `train()` is missing after a validation."""

import weakref

from torch import nn

from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.objects import find_objects
from samestep.torch_impl.recording.session import Session
from samestep.torch_impl.recording.start import start_with


class EvaluatedCalls:
    """The last call in evaluation mode, which the next backward pass trains unless a call in training mode comes in between."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        """Starts with no call.

        Args:
            session: The session to which a call is reported once it is trained on.
            recorder: The recorder, which has the options.
        """
        self._session, self._recorder, options = session, recorder, recorder.options
        self._changes, self._has_looked = options.perturb is not None or options.weights_from is not None, False
        self._last: tuple[weakref.ref[nn.Module], tuple[object, ...] | None, dict[str, object]] | None = None

    def see(self, module: nn.Module, arguments: tuple[object, ...] | None, keywords: dict[str, object]) -> None:
        """Handles a call of a module in evaluation mode while gradients are on.

        Args:
            module: The module.
            arguments: See `Session.before_call`.
            keywords: The keyword arguments of the call.
        """
        if not any(each.requires_grad for each in module.parameters()):
            return
        self._last = (weakref.ref(module), arguments, keywords)
        if self._changes and not self._session.called and find_objects()[1]:
            self._session.begin_pass()  # after the forward pass it would be too late to change the weights

    def before_zeroing(self) -> None:
        """Handles the zeroing of gradients, which usually precedes a forward pass.

        If modules override `__call__`, as those of GPyTorch do, hooks do not see the forward pass itself.
        """
        if not self._changes or self._has_looked or self._session.called:
            return
        self._has_looked = True
        modules, optimizers = find_objects()
        if optimizers and any(type(each).__call__ is not nn.Module.__call__ for each in modules):
            start_with(self._recorder, (), ())  # nothing else: such a module may only be initialized by its first call

    def before_training(self, module: nn.Module) -> None:
        """Handles a call of a module in training mode.

        Calls in evaluation mode earlier in the step, such as those for adversarial examples, then do not count.

        Args:
            module: The module.
        """
        session = self._session
        if id(module) in session.called:
            self._last = None
            if session.counts.evaluated and session.has_optimizer and not session.stepped:
                session.counts.evaluated = 0
                session.examples.forget()
                session.targets.forget()

    def before_backward(self) -> None:
        """Handles the start of a backward pass, which trains the last call unless that was of another model, as a teacher."""
        session, call, self._last = self._session, self._last, None
        if call is None or (module := call[0]()) is None or session.examples.is_pending:
            return
        if not session.called or id(module) in session.called:
            session.before_call(module, *call[1:])
            session.counts.evaluated += 1
