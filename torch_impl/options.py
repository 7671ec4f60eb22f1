"""The options that rows of PyTorch add to a run's. Imports no framework."""

import dataclasses

from common.config import flag
from common.errors import ConfigError, unknown
from common.evidence.laws.pipelined import SCHEDULES

CONSISTENCIES = ("sync", "async")
ZERO_STAGES = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class C10dOptions:
    """How c10d sums the gradients."""

    ring: bool = flag(False, "sum by a ring of 2(N-1) sends and receives between neighbours instead of an all_reduce")


@dataclasses.dataclass(frozen=True)
class DdpOptions:
    """How DDP groups the gradients."""

    bucket_bytes: int | None = flag(None, "all-reduce the gradients in buckets of about this size (DDP's own: 25 MiB)")

    def __post_init__(self) -> None:
        if self.bucket_bytes is not None and self.bucket_bytes < 1:
            raise ConfigError(f"--bucket-bytes is {self.bucket_bytes}; give a whole number from 1 up.")


@dataclasses.dataclass(frozen=True)
class DeepSpeedOptions:
    """What deepspeed's engine splits."""

    zero_stage: int = flag(1, f"one of {', '.join(map(str, ZERO_STAGES))}: optimizer; gradients, too; parameters, too")

    def __post_init__(self) -> None:
        if self.zero_stage not in ZERO_STAGES:
            raise unknown("ZeRO stage", str(self.zero_stage), map(str, ZERO_STAGES))


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """The options of the rows that run a pipeline."""

    schedule: str = flag("gpipe", f"one of {', '.join(SCHEDULES)}")
    microbatches: int = flag(4, "into how many micro-batches each pipeline cuts its part of the batch")


@dataclasses.dataclass(frozen=True)
class TensorOptions:
    """How tp treats what lies between the pairs of layers."""

    sequence_parallel: bool = flag(False, "a transformer's norms and residuals on parts of the sequence, too")


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """When a server applies what it is sent."""

    consistency: str = flag("sync", f"one of {', '.join(CONSISTENCIES)}: gradients together each step, or as they come")

    def __post_init__(self) -> None:
        if self.consistency not in CONSISTENCIES:
            raise unknown("consistency", self.consistency, CONSISTENCIES)
