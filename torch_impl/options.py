"""The options that rows of PyTorch add to a run's. Imports no framework."""

import dataclasses

from samestep.common.flags import flag
from samestep.common.workload.pipeline import SCHEDULES


@dataclasses.dataclass(frozen=True)
class C10dOptions:
    """How c10d sums the gradients."""

    ring: bool = flag(False, "sum by a ring of 2(N-1) sends and receives between neighbours instead of an all_reduce")


@dataclasses.dataclass(frozen=True)
class DdpOptions:
    """How DDP groups the gradients."""

    bucket_bytes: int | None = flag(
        None, "all-reduce the gradients in buckets of about this size (DDP's own: 25 MiB)", least=1
    )


@dataclasses.dataclass(frozen=True)
class DeepSpeedOptions:
    """What deepspeed's engine splits."""

    zero_stage: int = flag(
        1, "splits the optimizer; from 2 the gradients as well; at 3 also the parameters", choices=(1, 2, 3)
    )


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """The options of the rows that run a pipeline."""

    schedule: str = flag("gpipe", "in which order micro-batches go through the stages", choices=SCHEDULES)
    microbatches: int = flag(4, "into how many micro-batches each pipeline cuts its part of the batch", least=1)


@dataclasses.dataclass(frozen=True)
class TensorOptions:
    """How tp treats what lies between the pairs of layers."""

    sequence_parallel: bool = flag(False, "keep a transformer's norms and residuals on parts of the sequence")


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """When a server applies what it is sent."""

    consistency: str = flag(
        "sync", "apply the gradients of each step together, or each as it arrives", choices=("sync", "async")
    )

    @property
    def is_sync(self) -> bool:
        """Whether an update waits for the gradients of all workers."""
        return self.consistency == "sync"
