"""The options of PyTorch's rows, and the checks that refuse one that makes no sense. Imports no framework."""

import dataclasses

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.mesh import GATHER, HEADS, RING
from samestep.common.request import StrategyOptions
from samestep.common.strategy import Run
from samestep.common.techniques.used import spell_exchanges
from samestep.common.workload.pipeline_schedule import SCHEDULES


@dataclasses.dataclass(frozen=True)
class C10dOptions(StrategyOptions):
    """The option of c10d: how it sums the gradients."""

    ring: bool = flag(False, "sum by a ring of 2(N-1) sends and receives between neighbors instead of an all_reduce")


def check_ring(run: Run[C10dOptions]) -> None:
    """Refuses a ring where a technique exchanges gradients in another way.

    Raises:
        ConfigError: Both were asked for.
    """
    if run.options.ring and (own := spell_exchanges(run.techniques)):
        raise ConfigError(f"{own[0]} exchanges in its own way; leave out --ring.")


@dataclasses.dataclass(frozen=True)
class DdpOptions(StrategyOptions):
    """The option of ddp: how it groups the gradients."""

    bucket_bytes: int | None = flag(
        None,
        "all-reduce gradients in buckets of about this size (default: DDP's own, 1 MiB for the first and 25 MiB for the others)",
        least=1,
        most=2**40,
    )


def check_buckets(run: Run[DdpOptions]) -> None:
    """Refuses a bucket size if all gradients share one bucket.

    Raises:
        ConfigError: Both were asked for.
    """
    if run.techniques.overlap is False and run.options.bucket_bytes is not None:
        raise ConfigError(
            f"--no-overlap puts all gradients into one bucket; leave out --bucket-bytes {run.options.bucket_bytes}."
        )


@dataclasses.dataclass(frozen=True)
class DeepSpeedOptions(StrategyOptions):
    """The option of deepspeed: what its engine shards."""

    zero_stage: int = flag(
        1, "1 shards the optimizer state, 2 also the gradients, 3 also the parameters", choices=(1, 2, 3)
    )

    @property
    def cuts_parameters(self) -> bool:
        """Whether every parameter is sharded, including frozen ones."""
        return self.zero_stage == 3


@dataclasses.dataclass(frozen=True)
class PipelineOptions(StrategyOptions):
    """The options of the rows that run a pipeline."""

    schedule: str = flag(
        "gpipe", "the order in which the ranks compute the micro-batches of their stages", choices=SCHEDULES
    )
    microbatches: int = flag(
        4, "number of micro-batches into which each pipeline splits its part of the batch", least=1
    )


@dataclasses.dataclass(frozen=True)
class TensorOptions(StrategyOptions):
    """The option of tp: how it splits what lies between the pairs of layers."""

    sequence_parallel: bool = flag(False, "shard a transformer's norms and residuals along the sequence")


@dataclasses.dataclass(frozen=True)
class ContextOptions(StrategyOptions):
    """The option of the axis `context`: what attention layers exchange along it."""

    attention_exchange: str = flag(
        HEADS,
        "what ranks exchange in attention layers: heads trades positions for heads by all-to-all; gather gathers keys and "
        "values; ring passes them from rank to rank",
        choices=(HEADS, GATHER, RING),
    )

    @property
    def is_zigzag(self) -> bool:
        """Whether a rank has early and late positions (see `Chunk`); an exchange of heads keeps positions in order."""
        return self.attention_exchange != HEADS


@dataclasses.dataclass(frozen=True)
class HybridOptions(PipelineOptions, ContextOptions):
    """The options of the axes of hybrid."""

    shard_optimizer: bool = flag(
        False,
        "spread the optimizer state over the ranks that have the same parameters; each rank updates some of them and "
        "broadcasts these: ZeRO stage 1, or Megatron-LM's distributed optimizer",
    )


def refuse_lonely(run: Run) -> None:
    """Refuses to exchange keys and values when no axis splits the positions, for rows that also have other axes.

    Raises:
        ConfigError: The run asks for it.
    """
    if run.asked.is_zigzag and run.mesh.parts("positions") == 1:
        raise ConfigError(
            f"--attention-exchange {run.options.attention_exchange} needs an axis that splits positions, and {run.mesh} has "
            "none; add context=2 to --mesh, or leave it out."
        )


@dataclasses.dataclass(frozen=True)
class ConsistencyOptions(StrategyOptions):
    """The option of rpc_parameter_server: when its server applies the gradients that it receives."""

    consistency: str = flag(
        "sync",
        "sync applies the gradients of a step together, async applies each one when it arrives",
        choices=("sync", "async"),
    )

    @property
    def is_sync(self) -> bool:
        """Whether an update waits for the gradients of all workers."""
        return self.consistency == "sync"
