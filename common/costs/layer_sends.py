"""What the layers of a model exchange in the middle of a pass, where a feature of the model has them do so."""

from collections.abc import Callable, Iterable

from samestep.common.features.used import framework_sends, sends_of_layers
from samestep.common.ledger import Send
from samestep.common.strategy import Run

Sends = Callable[[Run, str], dict[str, Send]]
"""(run, phase) -> what each layer sends in the phase, by its path."""


def every_send(run: Run, phase: str) -> dict[str, Send]:
    """Returns what layers of ours and of a framework send, by path.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    return sends_of_layers(run, phase) | framework_sends(run, phase)


def with_layers(run: Run, sends: Iterable[Send], of_layers: Sends = every_send) -> list[Send]:
    """Adds what layers exchange to what a strategy sends.

    Args:
        run: What is trained.
        sends: The sends, in order.
        of_layers: Of which layers.
    """
    sends, forward, backward = list(sends), of_layers(run, "forward"), of_layers(run, "backward")
    inside = [*forward.values(), *reversed(backward.values())]
    first = next((index for index, send in enumerate(sends) if send.phase != "forward"), len(sends))
    return [*sends[:first], *inside, *sends[first:]]
