"""Bytes and counts, never seconds. One type for what a law predicts and for what a run measures."""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Footprint:
    """The tensor bytes of one device.

    Attributes:
        device: The framework's name of the device.
        params_bytes: Parameters at rest, between two steps.
        params_peak_bytes: The most parameter bytes alive at once within a step, gathered copies included.
        gradients_bytes: Gradients alive when the optimizer starts.
        optimizer_bytes: Slots shaped like a parameter; step counters do not count.
        source: How it was seen: "tensors", "graph" (the framework holds it inside its graph only), or "law".
    """

    device: str
    params_bytes: int
    params_peak_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    source: str


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One kind of exchange between devices, as seen from one of them.

    Attributes:
        name: What is done, such as "all_reduce".
        count_per_step: How often a step does it.
        bytes_per_step: Payload per step in bytes (the tensors handed over, not what the wire adds).
    """

    name: str
    count_per_step: int
    bytes_per_step: int


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Everything countable about one step.

    Attributes:
        footprints: One per device.
        exchanges: What one device takes part in during a step.
        sent_bytes_per_step: Bytes on the wire, summed over all processes.
    """

    footprints: tuple[Footprint, ...]
    exchanges: tuple[Exchange, ...]
    sent_bytes_per_step: float


@dataclasses.dataclass(frozen=True)
class Collective:
    """One kind of collective operation in a compiled step, as seen from one core.

    Attributes:
        name: As the compiler calls it, such as "all-reduce".
        count: How many of them a step has; one may carry many tensors.
        bytes: What they are handed, together.
    """

    name: str
    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A training step as compiled for hardware that was not there: of one core, and in the compiler's own figures.

    Attributes:
        topology: What it was compiled for.
        argument_bytes: State and batch, padded as the hardware holds them; if it does not fit, without padding.
        temporary_bytes: Everything that lives within the step only; None if it does not fit, like the next two.
        code_bytes: The program.
        flops: Of one step.
        collectives: Between the cores; none if it does not fit.
        needed_bytes: The memory it takes, all in all.
        hbm_bytes: The memory that the compiler grants it.
        fits: Whether that is enough.
        compiler: Which compiler said so.
    """

    topology: str
    argument_bytes: int
    temporary_bytes: int | None
    code_bytes: int | None
    flops: int | None
    collectives: tuple[Collective, ...]
    needed_bytes: int
    hbm_bytes: int
    fits: bool
    compiler: str


def read_compiled(values: Mapping[str, Any]) -> Compiled:
    """The plain values that a compiled step left, as what they were."""
    found = tuple(Collective(**each) for each in values["collectives"])
    return Compiled(**{**values, "collectives": found})
