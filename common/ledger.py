"""Bytes and counts, never seconds. One type for what a cost model predicts and for what a run measures."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Footprint:
    """The tensor bytes of one device.

    Attributes:
        device: The framework's name of the device.
        params_bytes: Parameters at rest, between two steps.
        params_peak_bytes: The most parameter bytes alive at once within a step, gathered copies included.
        gradients_bytes: Gradients alive when the optimizer starts.
        optimizer_bytes: Optimizer state shaped like a parameter; step counters do not count.
        source: How it was seen: "tensors", "graph" (the framework holds it inside its graph only), or "predicted".
        optimizer_dtype: Of the optimizer state, as measured; "" if there is none.
    """

    device: str
    params_bytes: int
    params_peak_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    source: str = "predicted"
    optimizer_dtype: str = ""

    @classmethod
    def uniform(
        cls,
        device: str,
        held_bytes: int,
        optimizer_bytes: int,
        source: str = "predicted",
        optimizer_dtype: str = "",
    ) -> "Footprint":
        """A device that holds as many bytes of gradients as of parameters, and gathers none.

        Args:
            device: Its name.
            held_bytes: Of the parameters that it holds.
            optimizer_bytes: Of its optimizer state.
            source: How it was seen.
            optimizer_dtype: Of its optimizer state.
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
        """Parameters, gradients and optimizer state together."""
        return self.params_bytes + self.gradients_bytes + self.optimizer_bytes


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

    @property
    def shortage(self) -> str:
        """How much memory a step that does not fit needs, and how much there is; "" if it fits."""
        generation = self.topology.partition(":")[0]
        return "" if self.fits else f"needs {gib(self.needed_bytes)}, {generation} has {gib(self.hbm_bytes)}"


def gib(count: int) -> str:
    """Bytes as memory is sold: 15.75 GiB."""
    return f"{count / 2**30:.2f}".removesuffix("0") + " GiB"
