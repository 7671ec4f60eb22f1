"""Techniques: how a step is taken, whatever the strategy. Each is a flag, and a part of a cell."""

import dataclasses

from samestep.common.flags import flag

MAX_STEPS = 10**9
"""A result lists the loss of every step: 20 GB of them."""
MAX_FACTOR = 10**6
"""Of what multiplies gradients, so that a float32 holds the product."""
TWO_BYTES = ("bf16", "fp16")
"""The types whose numbers have two bytes."""
SCHEDULES = ("constant", "linear", "cosine")
COMPRESSIONS = ("fp16", "bf16", "int8", "powersgd")


@dataclasses.dataclass(frozen=True)
class Techniques:
    """How a step is taken, under any strategy that takes it."""

    accumulation_steps: int = flag(
        1, "micro-batches into which each shard is split; their gradients add up and are exchanged on the last", least=1
    )
    clip_norm: float | None = flag(
        None,
        "scale a gradient with a larger global norm down to this norm (default: no clipping)",
        above=0,
        most=MAX_FACTOR,
    )
    learning_rate_schedule: str = flag(
        "constant", "how the learning rate decays after the warm-up, to zero at its end", choices=SCHEDULES
    )
    warmup_steps: int = flag(
        0, "steps over which the learning rate rises in equal parts to its full value", least=0, most=MAX_STEPS
    )
    decay_steps: int | None = flag(
        None,
        "the step at which linear and cosine end, counted from the first step of training (default: --steps)",
        least=1,
        most=MAX_STEPS,
    )

    precision: str | None = flag(
        None,
        "compute forward and backward in two bytes a number, from parameters in float32, which get gradients in float32 "
        "(default: everything in the dtype)",
        choices=TWO_BYTES,
    )

    recompute: bool = flag(
        False, "keep only the inputs of the model's inner segments, and compute the rest again in the backward pass"
    )

    compile: bool = flag(
        False, "compile the forward and backward pass, with torch.compile or XLA; takes seconds before the first step"
    )

    overlap: bool | None = flag(
        None,
        "exchange gradients in pieces while the backward pass still runs, or all together after it (default: as the "
        "strategy's API does)",
    )

    compress: str | None = flag(
        None,
        "exchange gradients in fewer bytes; int8 and powersgd add what they leave out to the next step's (default: as they are)",
        choices=COMPRESSIONS,
    )

    compress_rank: int = flag(
        4, "columns of each of the two factors that powersgd makes of a gradient", least=1, most=MAX_FACTOR
    )
    compress_warmup_steps: int = flag(
        0,
        "steps that exchange gradients as they are before powersgd begins, counted from the first step of training",
        least=0,
        most=MAX_STEPS,
    )

    def compression_at(self, step: int) -> str | None:
        """The method by which the gradients of a step, counted from 0, are exchanged; None: as they are."""
        return None if step < self.compress_warmup_steps else self.compress

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate differs between steps."""
        return self.warmup_steps > 0 or self.decay_steps is not None

    def without_transforms(self) -> "Techniques":
        """The techniques that leave the gradient of the whole batch as it is."""
        return dataclasses.replace(self, clip_norm=None)

    def of_reference(self) -> "Techniques":
        """The techniques that change the step; the others only change how it is computed, and how it is rounded."""
        return dataclasses.replace(self, precision=None, recompute=False, compile=False, overlap=None)

    @property
    def need_norm(self) -> bool:
        """Whether the norm of the whole gradient is needed in each step."""
        return self.clip_norm is not None
