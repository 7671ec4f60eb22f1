"""What the layers of a model exchange in the middle of a pass, where a feature of the model has them do so."""

from collections.abc import Iterable, Mapping

from samestep.common.features.used import exchange_within
from samestep.common.ledger import Send
from samestep.common.strategy import Run


def sends_of_layers(run: Run, phase: str) -> Mapping[str, Send]:
    """Returns what layers of our models send in the middle of a pass, by path.

    Args:
        run: What is trained.
        phase: The phase of the step.
    """
    exchange = exchange_within(run)
    return {} if exchange is None else exchange.sends(run, phase)


def with_layers(run: Run, sends: Iterable[Send], with_ours: bool = True) -> list[Send]:
    """Adds what layers exchange to what a strategy sends.

    Args:
        run: What is trained.
        sends: The sends, in order.
        with_ours: Whether layers of our models are among them, beside those of the framework.
    """
    sends = list(sends)
    if (exchange := exchange_within(run)) is None:
        return sends
    forward, backward = (
        [*(exchange.sends(run, phase).values() if with_ours else ()), *exchange.framework_sends(run, phase).values()]
        for phase in ("forward", "backward")
    )
    first = next((index for index, send in enumerate(sends) if send.phase != "forward"), len(sends))
    return [*sends[:first], *forward, *reversed(backward), *sends[first:]]
