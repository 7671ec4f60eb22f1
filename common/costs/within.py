"""What a rank exchanges inside the segments of its stage: along each axis of the mesh, on what the axes before it leave.

An inner segment that is recomputed also exchanges again. Autograd stops recomputing once it has everything that the forward
pass saved, so exchanges after that point are not repeated.
"""

import dataclasses
import itertools
from collections.abc import Sequence

from samestep.common.axes.axis import SegmentExchange, StagePass
from samestep.common.axes.used import as_left, segments_left, used
from samestep.common.costs.saved_activations.kept_lists import keeps_behind
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice
from samestep.common.workload.models.spec import Segment


def sends_within(run: Run, rows: int, segments: Sequence[Segment]) -> tuple[list[list[Send]], list[list[Send]]]:
    """Predicts the exchanges of some examples in each segment of a stage: forward in order, and backward in reverse order.

    Args:
        run: What is trained.
        rows: The number of examples.
        segments: The stage.
    """
    axes, run = used(run.mesh), as_left(run)
    stage = segments_left(run, segments)

    def within(phase: str, segment: Segment) -> list[SegmentExchange]:
        through = StagePass(phase, rows, stage)
        found = [each for axis in axes for each in axis.exchange(run, through, segment)]
        return sorted(found, key=lambda each: each.layer)

    forward = [within("forward", segment) for segment in stage]
    backward = []
    for segment, ahead in zip(reversed(stage), reversed(forward), strict=True):
        again, gradients = _again(run, segment, ahead), [each.send for each in reversed(within("backward", segment))]
        # A sharded gradient is gathered before any saved tensor is asked for.
        first = again and gradients and gradients[0].operation == "all_gather" and not keeps_behind(run, segment)
        backward.append([gradients[0], *again, *gradients[1:]] if first else [*again, *gradients])
    return [[each.send for each in sends] for sends in forward], backward


def step_within(run: Run) -> list[Send]:
    """Predicts what a rank that has all segments exchanges inside them in both passes of each micro-batch of a step."""
    sends = sends_within(run, run.examples_per_pass, run.workload.model.segments())
    return [*itertools.chain(*itertools.chain(*sends))] * run.passes


def _again(run: Run, segment: Segment, ahead: Sequence[SegmentExchange]) -> list[Send]:
    if segment not in computed_twice(run):
        return []
    needed = [each.send for each in ahead if each.is_needed or keeps_behind(run, segment)]
    return [dataclasses.replace(send, phase="backward") for send in needed]
