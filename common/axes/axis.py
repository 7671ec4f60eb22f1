"""What an axis of a mesh consists of, beside what it cuts: the hooks that its file fills in, and over which all else loops."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Param, Segment


class Within(NamedTuple):
    """An exchange inside a segment of a model.

    Attributes:
        layer: The number of the layer of the segment at which it takes place.
        send: What a rank hands over.
        is_needed: Whether the backward pass of the segment needs it, so that a recomputation repeats it.
    """

    layer: int
    send: Send
    is_needed: bool = True


class StagePass(NamedTuple):
    """A pass of some examples through a stage of a model, which may be all of it.

    Attributes:
        phase: "forward" or "backward".
        rows: The number of examples.
        segments: The stage.
    """

    phase: str
    rows: int
    segments: tuple[Segment, ...]


class Sizes(NamedTuple):
    """What the terms of the textbooks count in.

    Attributes:
        params: The bytes of all parameters, w Ψ.
        handed_on: Those that a block hands on, of the whole batch: a w.
        blocks: The number of blocks, L.
    """

    params: int
    handed_on: int
    blocks: int


class Term(NamedTuple):
    """What the textbooks say that all devices send along an axis in a step.

    Attributes:
        text: In the letters of `docs/predicting.md`.
        value: The same in bytes.
    """

    text: str
    value: Callable[[Run, Sizes], float]


Keeps = Callable[[ModelSpec, Segment, int, int], int]
"""(model as one rank sees it, segment, bytes of a number, size of the axis `tensor`) -> the bytes that the segment keeps of each
example, beside what one device would keep."""


def keeps_nothing(model: ModelSpec, segment: Segment, item_bytes: int, parts: int) -> int:
    """Returns 0: a segment keeps what it keeps on one device; the arguments are those of `Keeps`."""
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AxisHooks:
    """An axis of several devices, under any strategy that splits along it.

    Attributes:
        textbook: What is sent along it, in a run.
        refuse: Raises a ConfigError for a run that it cannot split, whatever the strategy.
        leave: Returns the run as one device along it sees the batch: what the other axes cost, they cost on that.
        exchange: What a rank exchanges along it in one segment of a pass, in the order of the layers in either phase.
        hold: What a device along it has of parameters; of those that it has in parts, the shapes of its own.
        keeps: Says of a run what its segments keep because of it.
    """

    textbook: Callable[[Run], Term]
    refuse: Callable[[Run], None] = lambda run: None
    leave: Callable[[Run], Run] = lambda run: run
    exchange: Callable[[Run, StagePass, Segment], Iterable[Within]] = lambda run, stage, segment: ()
    hold: Callable[[Run, Mapping[str, Param]], Mapping[str, Param]] = lambda run, params: params
    keeps: Callable[[Run], Keeps] = lambda run: keeps_nothing
