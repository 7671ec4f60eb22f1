"""Bytes and counts, never seconds. One type for what a law predicts and for what a run measures."""

import dataclasses


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
