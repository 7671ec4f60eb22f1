"""Bytes and counts, never seconds. One type for what a cost model predicts and for what a run measures."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

PHASES = ("forward", "backward", "update")
"""The phases of a step, in order. The exchange of gradients belongs to the backward pass, clipping to the update."""
STATE_OF_A_DEVICE = "parameters, gradients, optimizer state and compression residuals, on the fullest device"
MOST_SENDS = 1000
"""The most sends of one process that are recorded in order; for a larger step, sends are added up by kind."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Footprint:
    """The tensor bytes of one device, and of consecutive devices that hold the same.

    Attributes:
        device: The framework's name of the device.
        params_bytes: Parameters at rest, between two steps.
        params_peak_bytes: The most parameter bytes alive at once within a step, gathered copies included.
        gradients_bytes: Gradients alive when the optimizer starts.
        optimizer_bytes: Optimizer state shaped like a parameter; step counters do not count.
        activations_bytes: The most bytes kept between a forward and its backward pass, without parameters; None if unknown.
        source: How it was seen: "tensors", "graph" (the framework holds it inside its graph only), or "predicted".
        optimizer_dtype: The type of the optimizer state, as measured; "" if there is none.
        residuals_bytes: What compression keeps from one exchange to the next.
        allocated_peak_bytes: The most bytes of tensors that the device's own allocator held at once in the observed step; None
            if it does not count them, as on CPU cores, and with DTensor and parameter servers in TensorFlow.
        count: How many consecutive devices have this footprint; only predictions have more than one.
    """

    device: str
    params_bytes: int
    params_peak_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int | None = None
    source: str = "predicted"
    optimizer_dtype: str = ""
    residuals_bytes: int = 0
    allocated_peak_bytes: int | None = None
    count: int = 1

    @classmethod
    def uniform(
        cls, device: str, held_bytes: int, optimizer_bytes: int, source: str = "predicted", optimizer_dtype: str = ""
    ) -> "Footprint":
        """Returns a device that holds as many bytes of gradients as of parameters, and gathers none.

        Args:
            device: Its name.
            held_bytes: The bytes of the parameters that it holds.
            optimizer_bytes: The bytes of its optimizer state.
            source: How it was seen.
            optimizer_dtype: The type of its optimizer state.
        """
        return cls(
            device=device,
            params_bytes=held_bytes,
            params_peak_bytes=held_bytes,
            gradients_bytes=held_bytes,
            optimizer_bytes=optimizer_bytes,
            source=source,
            optimizer_dtype=optimizer_dtype,
        )

    @property
    def state_bytes(self) -> int:
        """Parameters, gradients, optimizer state and residuals together."""
        return self.params_bytes + self.gradients_bytes + self.optimizer_bytes + self.residuals_bytes


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One kind of communication between devices, as seen from one of them.

    Attributes:
        name: What is done, such as "all_reduce".
        count_per_step: How often a step does it.
        bytes_per_step: Payload per step in bytes (the tensors handed over, not what the wire adds).
    """

    name: str
    count_per_step: int
    bytes_per_step: int


@dataclasses.dataclass(frozen=True)
class Send:
    """A message or a collective of one step, as seen from one process; equal ones that follow each other are one record.

    Attributes:
        phase: One of `PHASES`.
        operation: What is done, such as "all_reduce".
        group: The mesh axis along which it goes, or "all".
        ranks: The number of ranks or devices along it; 0 if that is not known.
        bytes: Payload of all `count` of them: the tensors handed over, not what the wire adds.
        count: How many there are.
        to: The receiver of a message: a rank, a device, or the role of several processes, one of which receives it, such as
            "worker"; "" for a collective. For a pull, it is the one that is asked.
        source: The sender, in the same way, or the root of a broadcast; for several broadcasts the root of each, separated by
            commas. "" is the process that records it, or an unknown root.
        at: When it was handed over, as `time.time()`; None if only the order is known, or if it is predicted.
        item_bytes: The bytes of one number, if they are predicted to differ from those of the run.
    """

    phase: str
    operation: str
    group: str
    ranks: int
    bytes: int
    count: int = 1
    to: str = ""
    source: str = dataclasses.field(default="", compare=False)
    at: float | None = dataclasses.field(default=None, compare=False)
    item_bytes: int | None = dataclasses.field(default=None, compare=False)

    @property
    def kind(self) -> tuple[str, str, str, int, str]:
        """Everything but the count and the bytes."""
        return self.phase, self.operation, self.group, self.ranks, self.to

    @property
    def sources(self) -> tuple[str, ...]:
        """The source of each of the `count` sends."""
        return tuple(self.source.split(",")) if "," in self.source else (self.source,) * self.count


def in_order(sends: Iterable[Send]) -> tuple[Send, ...]:
    """Merges equal sends that follow each other into one record; in a step with too many, all sends of a kind."""
    runs = itertools.groupby(sends, lambda send: (*send.kind, send.bytes / send.count))
    told = tuple(_together(tuple(run)) for _, run in runs)
    if len(told) <= MOST_SENDS:
        return told
    kinds: dict[tuple[str, str, str, int, str], list[Send]] = {}
    for send in told:
        kinds.setdefault(send.kind, []).append(send)
    return tuple(map(_together, kinds.values()))


def _together(sends: Iterable[Send]) -> Send:
    first, *_ = sends = tuple(sends)
    size, count = sum(s.bytes for s in sends), sum(s.count for s in sends)
    every = [source for send in sends for source in send.sources]
    is_unclear = "" in every or count > MOST_SENDS or len({s.bytes / s.count for s in sends}) > 1
    source = every[0] if len({*every}) == 1 else "" if is_unclear else ",".join(every)
    return dataclasses.replace(first, bytes=size, count=count, source=source)


def exchanges_of(sends: Iterable[Send]) -> tuple[Exchange, ...]:
    """Adds sends up by operation, in alphabetical order."""
    totals: dict[str, tuple[int, int]] = {}
    for send in sends:
        count, size = totals.get(send.operation, (0, 0))
        totals[send.operation] = count + send.count, size + send.bytes
    return tuple(Exchange(name, *total) for name, total in sorted(totals.items()))


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Everything countable about one step.

    Attributes:
        footprints: The footprints of all devices, in order; one stands for `count` devices.
        sends: What the first device takes part in during a step, in order.
        sent_bytes_per_step: Bytes on the wire, summed over all processes.
    """

    footprints: tuple[Footprint, ...] = ()
    sends: tuple[Send, ...] = ()
    sent_bytes_per_step: float = 0.0

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The totals of the sends."""
        return exchanges_of(self.sends)

    @property
    def state_bytes(self) -> int | None:
        """The bytes of state on the device that holds the most; None without devices."""
        return max((each.state_bytes for each in self.footprints), default=None)

    @property
    def activations_bytes(self) -> int | None:
        """The bytes of activations on the device that keeps the most; None if they were neither counted nor predicted."""
        kept = (each.activations_bytes for each in self.footprints if each.activations_bytes is not None)
        return max(kept, default=None)

    def devices(self) -> Iterator[Footprint]:
        """Yields the footprint of every device, one by one."""
        for footprint in self.footprints:
            yield from itertools.repeat(dataclasses.replace(footprint, count=1), footprint.count)


@dataclasses.dataclass(frozen=True)
class Collective:
    """One kind of collective operation in a compiled step, as seen from one core.

    Attributes:
        name: As the compiler calls it, such as "all-reduce".
        count: How many of them a step has; one may carry many tensors.
        bytes: The bytes that all of them together are given.
    """

    name: str
    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A training step compiled for hardware that was not present, for one core, in the compiler's own figures.

    Attributes:
        topology: The hardware for which it was compiled.
        argument_bytes: State and batch, padded as the hardware holds them; if it does not fit, without padding.
        temporary_bytes: Everything that lives only within the step; None, like the next two, if it does not fit.
        code_bytes: The program.
        flops: The floating-point operations of one step.
        collectives: The collectives between the cores; none if it does not fit.
        needed_bytes: The memory that it takes in total.
        hbm_bytes: The memory that the compiler grants it.
        fits: Whether that is enough.
        compiler: The compiler that reported this.
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

    @property
    def shortage(self) -> str:
        """The memory that a step that does not fit needs, and the memory that there is, in words; "" if it fits."""
        generation = self.topology.partition(":")[0]
        return "" if self.fits else f"needs {gib(self.needed_bytes)}, {generation} has {gib(self.hbm_bytes)}"


def gib(count: int) -> str:
    """Formats bytes in GiB, as memory is sold, or in MiB if they are few."""
    if count < 2**27:
        return f"{count / 2**20:.3g} MiB"
    return f"{count / 2**30:.2f}".removesuffix("0") + " GiB"
