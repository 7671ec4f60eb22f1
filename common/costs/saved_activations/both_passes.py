"""What recomputation adds to the exchanges: an inner segment that is computed again also sends again.

Autograd stops computing again once it has everything that the first time kept, so what comes behind that is not repeated:
in a transformer's block the sum of the last layer's outputs.
"""

import dataclasses
from collections.abc import Callable, Sequence

from samestep.common.costs.saved_activations.kept_lists import keeps_behind
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice
from samestep.common.workload.models.spec import Segment

Within = Callable[[Segment], list[Send]]
"""What a segment sends in one pass."""


def both_passes(
    run: Run, segments: Sequence[Segment], ahead: Within, back: Within, num_last: int = 1
) -> tuple[list[Send], list[Send]]:
    """Lists what some segments send forward and backward, in order, with what they send again.

    Args:
        run: What is trained.
        segments: The segments, in order.
        ahead: What each sends forward.
        back: What each sends backward.
        num_last: How many of the sends of a segment come behind all that its backward pass needs.
    """
    backward: list[Send] = []
    for each in reversed(segments):
        again, gradients = _again(run, each, ahead(each), num_last), back(each)
        # A gradient in shards is gathered before anything that was kept is asked for.
        first = again and gradients and gradients[0].operation == "all_gather" and not keeps_behind(run, each)
        backward += [gradients[0], *again, *gradients[1:]] if first else [*again, *gradients]
    return [send for each in segments for send in ahead(each)], backward


def _again(run: Run, segment: Segment, sends: list[Send], num_last: int) -> list[Send]:
    if segment not in computed_twice(run):
        return []
    needed = sends if keeps_behind(run, segment) else sends[: len(sends) - num_last]
    return [dataclasses.replace(send, phase="backward") for send in needed]
