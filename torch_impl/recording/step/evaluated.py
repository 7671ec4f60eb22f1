"""Models that are trained in evaluation mode, as where `train()` is missing after a validation."""

import weakref

from torch import nn

from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.objects import find_objects
from samestep.torch_impl.recording.session import Session
from samestep.torch_impl.recording.start import start_with


class EvaluatedCalls:
    """The last call of a model in evaluation mode, which a backward pass trains if no call in training mode lies between."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        """Has seen none.

        Args:
            session: Is told of the call once it is trained on.
            recorder: Has the options.
        """
        self._session, self._recorder, options = session, recorder, recorder.options
        self._changes, self._has_looked = options.perturb is not None or options.weights_from is not None, False
        self._last: tuple[weakref.ref[nn.Module], tuple[object, ...] | None, dict[str, object]] | None = None

    def see(self, module: nn.Module, arguments: tuple[object, ...] | None, keywords: dict[str, object]) -> None:
        """A module is called in evaluation mode, where gradients are followed.

        Args:
            module: The module.
            arguments: As for `Session.before_call`.
            keywords: The keywords of the call.
        """
        if not any(each.requires_grad for each in module.parameters()):
            return
        self._last = (weakref.ref(module), arguments, keywords)
        if self._changes and not self._session.called and find_objects()[1]:
            self._session.begin_pass()  # once the forward pass has used the weights it is too late to change them

    def before_zeroing(self) -> None:
        """Gradients are set to zero, as a rule before a forward pass.

        Nobody is told of that pass where a module has a way of its own to be called, as those of GPyTorch have.
        """
        if not self._changes or self._has_looked or self._session.called:
            return
        self._has_looked = True
        modules, optimizers = find_objects()
        if optimizers and any(type(each).__call__ is not nn.Module.__call__ for each in modules):
            start_with(self._recorder, (), ())  # and no more: such a module may be initialized when it is called first

    def before_training(self, module: nn.Module) -> None:
        """A module is called in training mode.

        What was trained on in evaluation mode within this step, such as adversarial examples, is no part of it then.

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
        """A backward pass begins; it trains the call, unless that was of another model than the one trained before: a teacher."""
        session, call, self._last = self._session, self._last, None
        if call is None or (module := call[0]()) is None or session.examples.is_pending:
            return
        if not session.called or id(module) in session.called:
            session.before_call(module, *call[1:])
            session.counts.evaluated += 1
