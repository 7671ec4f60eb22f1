"""What an axis of a mesh consists of, beside what it cuts: the hooks that its file fills in, and over which all else loops."""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from samestep.common.ledger import Send
from samestep.common.mesh import Mesh
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


class BlockPass(NamedTuple):
    """A pass through a block of a transformer, as the model of time sees it: what a device has, in numbers for each token.

    Attributes:
        tokens: Those of a device.
        width: The width of the stream.
        queries: The width of the queries of all heads.
        keys: The width of their keys, and of their values.
        head: The width of one head.
        values: The width of what attention returns.
        taken: The experts that a token takes; 0 where the block has none.
        parts: Into how many parts layers are cut inside.
        splits_between: Whether what lies between these layers is cut as well.
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
    """What the textbooks say of waiting along an axis.

    Attributes:
        text: In the letters of `docs/predicting.md`.
        share: The share of a step in which a device waits.
    """

    text: str
    share: float


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
        divides: Whether devices along it have parts of a parameter, by its name.
        outputs: Into how many parts it leaves what a segment returns.
        keeps: Says of a run what its segments keep because of it.
        splits_between: Whether a run also cuts along it what lies between the layers that it cuts.
        all_to_all: The numbers that a device has of each all-to-all along it in a pass through a block, forward or backward; None
            where it exchanges otherwise.
        about: What these exchanges are called.
        most: Into how many parts a model can be cut along it at most, beside a mesh of axes that were applied before.
        idle: How long devices along it wait for each other, in a run.
        turns: In how many turns a device takes its examples, each of which keeps as much as all blocks do; None where no textbook
            says what is kept.
    """

    textbook: Callable[[Run], Term]
    refuse: Callable[[Run], None] = lambda run: None
    leave: Callable[[Run], Run] = lambda run: run
    exchange: Callable[[Run, StagePass, Segment], Iterable[Within]] = lambda run, stage, segment: ()
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
