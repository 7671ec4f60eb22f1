"""The hooks that the file of an axis fills in and over which everything else loops. `AXES` says what each axis cuts."""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from samestep.common.ledger import Send
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Param, Segment


class SegmentExchange(NamedTuple):
    """An exchange inside a segment of a model.

    Attributes:
        layer: The number of the layer of the segment at which it takes place.
        send: The send of one rank.
        is_needed: Whether the backward pass of the segment needs it. A recomputation then repeats it.
    """

    layer: int
    send: Send
    is_needed: bool = True


class StagePass(NamedTuple):
    """A pass of some examples through a stage of a model; a stage may be the whole model.

    Attributes:
        phase: "forward" or "backward".
        rows: The number of examples.
        segments: The segments of the stage.
    """

    phase: str
    rows: int
    segments: tuple[Segment, ...]


class Sizes(NamedTuple):
    """The sizes in which the terms of the textbooks are expressed.

    Attributes:
        params: The bytes of all parameters, w Ψ.
        handed_on: The bytes of activations that a block passes on, for the whole batch: a w.
        blocks: The number of blocks, L.
    """

    params: int
    handed_on: int
    blocks: int


class Term(NamedTuple):
    """The bytes that all devices send along an axis in a step, according to the textbooks.

    Attributes:
        text: The formula, in the letters of `docs/predicting.md`.
        value: Its value in bytes.
    """

    text: str
    value: Callable[[Run, Sizes], float]


class BlockPass(NamedTuple):
    """A pass through a block of a transformer, as the time model sees it: how many numbers a device has for each token.

    Attributes:
        tokens: The tokens of a device.
        width: The numbers of the residual stream.
        queries: The numbers of the queries of all heads.
        keys: The numbers of the keys of all heads; the values have as many.
        head: The numbers of one head.
        values: The numbers that attention returns.
        taken: How many experts a token takes; 0 if the block has none.
        parts: The number of parts into which layers are cut.
        splits_between: Whether the activations between these layers are cut as well.
        ranks: The devices along the axis.
    """

    tokens: float
    width: int
    queries: int
    keys: int
    head: int
    values: int
    taken: int
    parts: int
    splits_between: bool
    ranks: int


class Idle(NamedTuple):
    """How long devices wait along an axis, according to the textbooks.

    Attributes:
        text: The formula, in the letters of `docs/predicting.md`.
        share: The share of a step in which a device waits.
    """

    text: str
    share: float


Keeps = Callable[[ModelSpec, Segment, int, int], int]
"""(model as one rank sees it, segment, bytes of a number, size of the axis `tensor`) -> the bytes that the segment keeps for
each example in addition to what it would keep on one device."""


def keeps_nothing(model: ModelSpec, segment: Segment, item_bytes: int, parts: int) -> int:
    """Returns 0, for a segment that keeps as much as on one device; the arguments are those of `Keeps`."""
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AxisHooks:
    """The effects of an axis of several devices on a run, under any strategy that splits along it.

    Attributes:
        textbook: The bytes that a run sends along it, according to the textbooks.
        refuse: Raises a ConfigError for a run that it cannot split under any strategy.
        leave: Returns the run as one device along it sees the batch. The costs of the other axes are computed for that run.
        exchange: Yields what a rank exchanges along it in one segment of a pass, in the order of the layers in either phase.
        hold: Returns the parameters that a device along it holds; a parameter that is in parts has the shape of the device's
            part.
        divides: Whether devices along it hold parts of a parameter, given its name.
        outputs: Returns into how many parts it cuts the outputs of a segment.
        keeps: Returns what the segments of a run keep because of it.
        splits_between: Whether a run also cuts the activations between the layers that it cuts.
        all_to_all: How many numbers a device has in each all-to-all along it, in a forward or a backward pass through a block;
            None if it uses other exchanges.
        about: The name of these exchanges in messages.
        most: The most parts into which a model can be cut along it, given the mesh of the axes that were applied before.
        idle: How long devices along it wait for each other, in a run.
        turns: In how many turns a device takes its examples, where each turn keeps as much as all blocks do; None if no
            textbook says what is kept.
    """

    textbook: Callable[[Run], Term]
    refuse: Callable[[Run], None] = lambda run: None
    leave: Callable[[Run], Run] = lambda run: run
    exchange: Callable[[Run, StagePass, Segment], Iterable[SegmentExchange]] = lambda run, stage, segment: ()
    hold: Callable[[ModelSpec, Mesh, Mapping[str, Param]], Mapping[str, Param]] = lambda model, mesh, params: params
    divides: Callable[[ModelSpec, Mesh, str], bool] = lambda model, mesh, name: False
    outputs: Callable[[ModelSpec, Mesh, Segment], int] = lambda model, mesh, segment: 1
    keeps: Callable[[Run], Keeps] = lambda run: keeps_nothing
    splits_between: Callable[[Run], bool] = lambda run: False
    all_to_all: Callable[[BlockPass], Sequence[float]] | None = None
    about: str = ""
    most: Callable[[ModelSpec, Mesh], int] = lambda model, mesh: sys.maxsize
    idle: Callable[[Run], Idle | None] = lambda run: None
    turns: Callable[[Run], int | None] = lambda run: 1
