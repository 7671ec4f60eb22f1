"""The strategies of PyTorch, one row each. Imports no framework."""

import dataclasses

from common.config import flag
from common.errors import ConfigError, unknown
from common.evidence.laws.all_reduced import bucketed, by_hand
from common.evidence.laws.flattened import flattened
from common.evidence.laws.hybrid import three_dimensional
from common.evidence.laws.pipelined import SCHEDULES, called, pipelined
from common.evidence.laws.replicated import replicated
from common.evidence.laws.scattered import scattered
from common.evidence.laws.served import served
from common.evidence.laws.sharded import freed_between, kept_whole, slots_sharded
from common.evidence.laws.tensor_pairs import paired
from common.runtime.topology import one_process, ranks, ranks_and_server
from common.strategy import Answer, FrameworkInfo, Measure, StrategyInfo, Textbook
from torch_impl import needs
from torch_impl.machine import num_gpus

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


OVERLAP_MEASURES = (
    Measure("communication_seconds", "s per step", "how long the gradients were on their way"),
    Measure("overlap_seconds", "s per step", "how much of that while the backward pass still ran"),
)


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


PIPELINE_MEASURES = (
    Measure("busy_seconds", "s per step", "median time in which this rank computed forward and backward"),
    Measure("idle_seconds", "s per step", "the rest of its step: waiting for others, sending, and overhead"),
)

FRAMEWORK = FrameworkInfo(
    module="torch",
    extra="torch",
    environment={},
    preload=(
        "torch_impl.program",
        "torch._dynamo",
    ),  # torch 2.13: every optimizer imports _dynamo, which takes a second
    rows=(
        StrategyInfo(
            name="single",
            summary="The plain step on one device: the baseline of every comparison.",
            goal="baseline",
            data_split=Answer("no", "one device takes the whole batch"),
            model_split=Answer("no", "one device holds the whole model"),
            synchronous=True,
            hardware="one CPU core or one GPU",
            axes=(),
            topology=one_process,
            law=replicated,
            backend="memory",
            reference="torch.nn.Module, torch.optim",
            status="stable",
            twin="tf:single",
        ),
        StrategyInfo(
            name="c10d",
            summary="Data parallelism by hand: one all-reduce of the flat gradient once the backward pass is done.",
            goal="to see the algorithm; the control for ddp's overlap",
            data_split=Answer("yes", "one contiguous shard of the global batch per rank"),
            model_split=Answer("no", "every rank holds the whole model"),
            synchronous=True,
            hardware="several GPUs on one or more machines; CPU cores over gloo",
            axes=("data",),
            topology=ranks,
            law=by_hand,
            backend="gloo",
            reference="torch.distributed.all_reduce, isend, recv",
            status="stable",
            twin="tf:multi_worker_mirrored",
            options=C10dOptions,
            measures=OVERLAP_MEASURES,
        ),
        StrategyInfo(
            name="dp",
            summary="One process: a master sends mini-batches and parameters to its replicas in every forward pass.",
            goal="to see what ddp does better",
            data_split=Answer("yes", "the master scatters each batch among its replicas"),
            model_split=Answer("no", "every replica is sent the whole model, every step"),
            synchronous=True,
            hardware="several GPUs of one machine",
            axes=("data",),
            topology=one_process,
            law=scattered,
            backend="memory",
            reference="torch.nn.DataParallel",
            status="in maintenance; upstream recommends DistributedDataParallel even on one machine",
            twin="tf:central_storage",
            emulated="" if num_gpus() > 1 else "threads; nn.DataParallel needs two GPUs",
            measures=(
                Measure("master_share", "share of the step", "how long the master works alone while its replicas wait"),
            ),
        ),
        StrategyInfo(
            name="ddp",
            summary="One process per device, gradients all-reduced in buckets during the backward pass.",
            goal="speed, when the model fits one device",
            data_split=Answer("yes", "one contiguous shard of the global batch per rank"),
            model_split=Answer("no", "every rank holds the whole model"),
            synchronous=True,
            hardware="several GPUs on one or more machines; CPU cores over gloo",
            axes=("data",),
            topology=ranks,
            law=bucketed,
            backend="gloo",
            reference="torch.nn.parallel.DistributedDataParallel",
            status="stable; upstream recommends it over DataParallel even on one machine",
            twin="tf:mirrored",
            options=DdpOptions,
            measures=OVERLAP_MEASURES,
        ),
        StrategyInfo(
            name="zero1",
            summary="DDP, with the optimizer's slots spread over the ranks: each updates some parameters and broadcasts them.",
            goal="memory: the optimizer's slots, 1/N each",
            data_split=Answer("yes", "one contiguous shard of the global batch per rank"),
            model_split=Answer("partial", "the optimizer's slots only, whole parameters to a rank"),
            synchronous=True,
            hardware="several GPUs on one or more machines; CPU cores over gloo",
            axes=("data",),
            topology=ranks,
            law=slots_sharded,
            textbook=Textbook("ZeRO", speed=1, memory=1, sent=2),
            backend="gloo",
            reference="torch.distributed.optim.ZeroRedundancyOptimizer",
            status="stable; upstream develops fully_shard instead",
            twin="",
        ),
        StrategyInfo(
            name="zero2",
            summary="Gradients and optimizer sharded; parameters gathered block by block, and kept for the whole step.",
            goal="memory: gradients and optimizer slots, 1/N each",
            data_split=Answer("yes", "one contiguous shard of the global batch per rank"),
            model_split=Answer("partial", "each parameter along its first dimension, but whole during the step"),
            synchronous=True,
            hardware="several GPUs on one or more machines; CPU cores over gloo",
            axes=("shard", "data"),
            topology=ranks,
            law=kept_whole,
            textbook=Textbook("ZeRO", speed=2, memory=2, sent=2),
            backend="gloo",
            reference="torch.distributed.fsdp.fully_shard(reshard_after_forward=False)",
            status="stable; replaces FullyShardedDataParallel(SHARD_GRAD_OP), which is deprecated",
            twin="",
        ),
        StrategyInfo(
            name="fsdp",
            summary="Everything sharded; each block's parameters are gathered only while it computes.",
            goal="memory: models that do not fit one device",
            data_split=Answer("yes", "one contiguous shard of the global batch per rank"),
            model_split=Answer("yes", "each parameter along its first dimension, gathered block by block"),
            synchronous=True,
            hardware="several GPUs with fast links, HSDP (data=2,shard=8) for more machines; CPU cores over gloo",
            axes=("shard", "data"),
            topology=ranks,
            law=freed_between,
            textbook=Textbook("ZeRO", speed=3, memory=3, sent=1),
            backend="gloo",
            reference="torch.distributed.fsdp.fully_shard",
            status="stable; replaces FullyShardedDataParallel (FSDP1), which is deprecated",
            twin="",
        ),
        StrategyInfo(
            name="deepspeed",
            summary="DeepSpeed's engine: optimizer, gradients or parameters flattened and sharded, by its ZeRO stage.",
            goal="memory, with what only DeepSpeed has, such as offloading",
            data_split=Answer("yes", "one contiguous shard of the global batch per rank"),
            model_split=Answer("flexible", "stage 1: the optimizer; 2: the gradients, too; 3: the parameters, too"),
            synchronous=True,
            hardware="several GPUs on one or more machines; CPU cores over gloo",
            axes=("data",),
            topology=ranks,
            law=flattened,
            backend="gloo",
            reference="deepspeed.initialize, deepspeed.DeepSpeedEngine",
            status="stable, outside PyTorch; trains in float32 masters at most, and by default clips gradients to norm 1",
            twin="",
            options=DeepSpeedOptions,
            dtypes=("float32",),
            package="deepspeed",
        ),
        StrategyInfo(
            name="mp",
            summary="One stage of the layers per rank, one batch at a time: all ranks but one wait.",
            goal="memory, when nothing better can be had",
            data_split=Answer("no", "the whole batch goes through every stage"),
            model_split=Answer("yes", "contiguous stages of layers, of about equal FLOPs"),
            synchronous=True,
            hardware="several GPUs, whose links carry little; CPU cores over gloo",
            axes=("pipe",),
            topology=ranks,
            law=pipelined,
            backend="gloo",
            reference="torch.distributed.send, torch.distributed.recv",
            status="a textbook pattern, not an API; upstream points to torch.distributed.pipelining",
            twin="",
            measures=(
                Measure(
                    "idle_share",
                    "share of the step",
                    "how long this rank waited for the activations or gradients of another",
                ),
            ),
            needs=needs.enough_cuts,
        ),
        StrategyInfo(
            name="pp",
            summary="Stages of layers on the ranks, micro-batches following each other through them.",
            goal="memory and speed, when the model fits no device and the links are slow",
            data_split=Answer("partial", "into micro-batches, which every rank takes one after the other"),
            model_split=Answer("yes", "contiguous stages of layers, one or two a rank"),
            synchronous=True,
            hardware="several GPUs on one or more machines; CPU cores over gloo",
            axes=("pipe",),
            topology=ranks,
            law=pipelined,
            backend="gloo",
            reference="torch.distributed.pipelining",
            status="alpha upstream, the successor of PiPPy, which was merged into it",
            twin="",
            options=PipelineOptions,
            measures=PIPELINE_MEASURES,
            needs=needs.runnable_schedule,
        ),
        StrategyInfo(
            name="tp",
            summary="Layers cut in pairs by column and by row; every rank computes its part of each on the whole batch.",
            goal="memory and speed of large layers, inside one machine",
            data_split=Answer("no", "every rank takes the whole batch"),
            model_split=Answer("yes", "kernels, heads, the vocabulary and tables of rows, by the neutral split table"),
            synchronous=True,
            hardware="several GPUs with fast links in one machine; CPU cores over gloo",
            axes=("tensor",),
            topology=ranks,
            law=paired,
            backend="gloo",
            reference="torch.distributed.tensor.parallel.parallelize_module, loss_parallel",
            status="experimental upstream; DTensor's convolutions are wrong when sharded (2.13), so they stay whole here",
            twin="",
            options=TensorOptions,
            needs=needs.divisible_layers,
        ),
        StrategyInfo(
            name="rpc",
            summary="Stages on RPC workers, driven by one of them; autograd and the optimizer reach across the calls.",
            goal="memory, and irregular models that no pipeline takes",
            data_split=Answer("no", "the whole batch goes through every stage"),
            model_split=Answer("yes", "contiguous stages of layers, of about equal FLOPs"),
            synchronous=True,
            hardware="CPU cores on one or more machines; GPUs need a device map",
            axes=("pipe",),
            topology=ranks,
            law=called,
            backend="tensorpipe",
            reference="torch.distributed.rpc, torch.distributed.autograd, torch.distributed.optim.DistributedOptimizer",
            status="TensorPipe, which carries it, is in maintenance mode; upstream advises against new uses",
            twin="",
            needs=needs.unclipped_stages,
        ),
        StrategyInfo(
            name="rpc_parameter_server",
            summary="Parameters on a server process; workers pull them, compute their shard, and push gradients back.",
            goal="tables far larger than what a step touches; workers that need not wait for each other",
            data_split=Answer("yes", "one contiguous shard of the global batch per worker"),
            model_split=Answer("partial", "the ranker's tables on the server, its tower on the workers; others whole"),
            synchronous=True,
            hardware="CPU cores on one or more machines; one process more than devices",
            axes=("data",),
            topology=ranks_and_server,
            law=served,
            backend="tensorpipe",
            reference="torch.distributed.rpc, rpc.functions.async_execution",
            status="TensorPipe, which carries it, is in maintenance mode; upstream advises against new uses",
            twin="tf:parameter_server",
            options=ServerOptions,
            measures=(
                Measure(
                    "staleness", "updates", "mean age of the parameters to which a worker's gradients were applied"
                ),
            ),
            waits=needs.consistent,
            needs=needs.unclipped,
        ),
        StrategyInfo(
            name="hybrid",
            summary="A mesh pipe x data (or shard) x tensor: pipelines of stages that are cut inside and replicated or sharded.",
            goal="models that are too large for any one axis",
            data_split=Answer("yes", "one contiguous shard per pipeline, then into micro-batches"),
            model_split=Answer("yes", "layers along pipe, the inside of layers along tensor, the rest along shard"),
            synchronous=True,
            hardware="many GPUs: tensor inside a machine, pipe between machines, data or shard outside; CPU cores over gloo",
            axes=("pipe", "data", "shard", "tensor"),
            topology=ranks,
            law=three_dimensional,
            backend="gloo",
            reference="torch.distributed.device_mesh, pipelining, tensor.parallel, fsdp.fully_shard",
            status="each part as in pp, tp and fsdp; DDP inside pipelines fails or is silently wrong (2.13), so it is not used",
            twin="tf:dtensor",
            options=PipelineOptions,
            measures=PIPELINE_MEASURES,
            needs=needs.three_dimensions,
        ),
    ),
)
