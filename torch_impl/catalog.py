"""The strategies of PyTorch, one row each. Imports no framework."""

import functools
import os

from samestep.common.catalog import FrameworkInfo
from samestep.common.costs.context import cp
from samestep.common.costs.data_parallel import c10d, ddp, replicated
from samestep.common.costs.deepspeed import deepspeed
from samestep.common.costs.expert import ep, ep_as_routed
from samestep.common.costs.one_process import dp
from samestep.common.costs.pipeline import hybrid, mp, pp
from samestep.common.costs.routes import routes
from samestep.common.costs.saved_activations import kept_torch
from samestep.common.costs.tensor import tp
from samestep.common.costs.zero import fsdp, zero1, zero2
from samestep.common.runtime.topology import one_process, ranks
from samestep.common.strategy import Answer, StrategyInfo
from samestep.torch_impl.rows import by_calls, dangers, measures, needs, options, refusals, sums

GPUS = "several GPUs on one or more machines; CPU cores over gloo"
SHARD_PER_RANK = Answer("yes", "one contiguous shard of the global batch per rank")
WHOLE_MODEL = Answer("no", "every rank holds the whole model")
in_one_process = functools.partial(
    StrategyInfo, topology=one_process, backend="memory", scales_loss=True, refuses=refusals.ALONE
)
over_ranks = functools.partial(
    StrategyInfo, topology=ranks, backend="gloo", hardware=GPUS, scales_loss=True, refuses=refusals.NO_SWITCH
)
layer_parallel = functools.partial(over_ranks, refuses=refusals.SPLIT_LAYERS)
data_parallel = functools.partial(over_ranks, data_split=SHARD_PER_RANK, model_split=WHOLE_MODEL, axes=("data",))
pipelined = functools.partial(layer_parallel, options=options.PipelineOptions, measures=measures.PIPELINE)
FRAMEWORK = FrameworkInfo(
    module="torch",
    title="PyTorch",
    saved=kept_torch.saved,
    routes=routes,
    available=needs.require_compiler,
    extra="torch",
    # In a private network torch warns of every connection without a name (2.13). Our ranks have no agent of torchrun's.
    environment={
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    },
    preload=("samestep.torch_impl.program", "torch._dynamo"),  # which every optimizer imports, in a second (2.13)
    rows=(
        in_one_process(
            name="single",
            summary="The plain step on one device: the baseline of every comparison.",
            goal="baseline",
            data_split=Answer("no", "one device takes the whole batch"),
            model_split=Answer("no", "one device holds the whole model"),
            hardware="one CPU core or one GPU",
            axes=(),
            cost=replicated,
            reference="torch.nn.Module, torch.optim",
            status="stable",
            twin="tf:single",
        ),
        data_parallel(
            name="c10d",
            summary="Data parallelism by hand: one all-reduce of the flat gradient once the backward pass is done.",
            goal="seeing the algorithm; a control for ddp",
            cost=c10d,
            reference="torch.distributed.all_reduce, isend, recv",
            status="stable",
            twin="tf:multi_worker_mirrored",
            options=options.C10dOptions,
            needs=sums.check_ring,
            measures=measures.OVERLAP,
        ),
        in_one_process(
            name="dp",
            summary="One process: a master sends mini-batches and parameters to its replicas in every forward pass.",
            goal="seeing what ddp does better",
            data_split=Answer("yes", "the master scatters each batch among its replicas"),
            model_split=Answer("no", "every replica is sent the whole model, every step"),
            hardware="several GPUs of one machine",
            axes=("data",),
            cost=dp,
            reference="torch.nn.DataParallel",
            status="discouraged; upstream recommends DistributedDataParallel, even on one machine",
            twin="tf:central_storage",
            emulation="threads; nn.DataParallel needs two GPUs",
            refuses=refusals.NEW_REPLICAS,
            needs=needs.check_replicas,
            measures=measures.MASTER,
        ),
        data_parallel(
            name="ddp",
            summary="One process per device, gradients all-reduced in buckets during the backward pass.",
            goal="speed, when the model fits one device",
            refuses={},
            cost=ddp,
            reference="torch.nn.parallel.DistributedDataParallel",
            status="stable; upstream recommends it over DataParallel even on one machine",
            twin="tf:mirrored",
            options=options.DdpOptions,
            needs=sums.check_buckets,
            measures=measures.OVERLAP,
        ),
        data_parallel(
            name="zero1",
            summary="DDP, with the optimizer state spread over the ranks: each updates some parameters and broadcasts them.",
            goal="memory: the optimizer state, 1/N each",
            model_split=Answer("partial", "the optimizer state only, whole parameters to a rank"),
            refuses=refusals.BROADCASTS,
            cost=zero1,
            needs=needs.refuse_some,
            reference="torch.distributed.optim.ZeroRedundancyOptimizer",
            measures=measures.OVERLAP,
            status="experimental; upstream calls it subject to change and develops fully_shard",
        ),
        data_parallel(
            name="zero2",
            summary="Gradients and optimizer sharded; parameters gathered block by block, and kept for the whole step.",
            goal="memory: also the gradients, 1/N each",
            model_split=Answer("partial", "each parameter along its first dimension, but whole during the step"),
            axes=("shard", "data", "context", "expert"),
            options=options.ContextOptions,
            cost=zero2,
            needs=sums.check_shards,
            reference="torch.distributed.fsdp.fully_shard(reshard_after_forward=False)",
            status="stable; replaces FullyShardedDataParallel(SHARD_GRAD_OP), which is deprecated",
        ),
        data_parallel(
            name="fsdp",
            summary="Everything sharded; each block's parameters are gathered only while it computes.",
            goal="memory: models too large for one device",
            model_split=Answer("yes", "each parameter along its first dimension, gathered block by block"),
            hardware="several GPUs with fast links, HSDP (data=2,shard=8) for more machines; CPU cores over gloo",
            axes=("shard", "data", "context", "expert"),
            options=options.ContextOptions,
            cost=fsdp,
            needs=sums.check_shards,
            reference="torch.distributed.fsdp.fully_shard",
            status="stable; replaces FullyShardedDataParallel (FSDP1), which is deprecated",
        ),
        data_parallel(
            name="deepspeed",
            summary="DeepSpeed's engine: optimizer, gradients or parameters flattened and sharded, by its ZeRO stage.",
            goal="memory, and what only DeepSpeed has",
            model_split=Answer("flexible", "stage 1: the optimizer; 2: also the gradients; 3: also the parameters"),
            cost=deepspeed,
            reference="deepspeed.initialize, deepspeed.DeepSpeedEngine",
            status="stable; not part of PyTorch, trains in float32 at most, and by default clips gradients to norm 1",
            needs=needs.check_engine,
            refuses=refusals.NO_SWITCH | refusals.NO_ORDER,
            options=options.DeepSpeedOptions,
            dtypes=("float32",),
            cuts_parameters=True,
            scales_loss=False,
            package="deepspeed",
        ),
        layer_parallel(
            name="mp",
            summary="One stage of the layers per rank, one batch at a time: all ranks but one wait.",
            goal="memory, when nothing better can be had",
            data_split=by_calls.WHOLE_BATCH,
            model_split=by_calls.EQUAL_STAGES,
            hardware="several GPUs, whose links carry little; CPU cores over gloo",
            axes=("pipe",),
            cost=mp,
            reference="torch.distributed.send, torch.distributed.recv",
            status="no API; a textbook pattern, for which upstream points to torch.distributed.pipelining",
            measures=measures.WAITING,
            needs=needs.check_stages,
        ),
        pipelined(
            name="pp",
            summary="Stages of layers on the ranks, micro-batches following each other through them.",
            goal="large models over slow links",
            data_split=Answer("partial", "into micro-batches, which every rank takes one after the other"),
            model_split=Answer("yes", "contiguous stages of layers, one or two a rank"),
            axes=("pipe",),
            cost=pp,
            reference="torch.distributed.pipelining",
            status="alpha; the successor of PiPPy, which was merged into it",
            needs=needs.check_schedule,
            danger_of_open_ports=dangers.UNPICKLES,
        ),
        layer_parallel(
            name="tp",
            summary="Layers split in pairs, by column and by row; every rank computes its part of each on the whole batch.",
            goal="large layers, inside one machine",
            data_split=Answer("no", "every rank takes the whole batch"),
            model_split=Answer("yes", "kernels, heads, the vocabulary and tables of rows, by the neutral split table"),
            hardware="several GPUs with fast links in one machine; CPU cores over gloo",
            axes=("tensor",),
            cost=tp,
            reference="torch.distributed.tensor.parallel.parallelize_module, loss_parallel",
            status="experimental; DTensor's convolutions are wrong when sharded (2.13), so they stay whole here",
            twin="tf:dtensor",
            options=options.TensorOptions,
            refuses=refusals.SPLIT_LAYERS | refusals.PARTS_OF_SUMS,
            needs=needs.check_tensor_parallel,
        ),
        over_ranks(
            name="cp",
            summary="Each rank takes some positions of every example; attentions exchange positions for heads and back.",
            goal="memory: activations of long sequences",
            data_split=Answer("yes", "by positions, and along data by examples"),
            model_split=WHOLE_MODEL,
            axes=("context", "data"),
            cost=cp,
            reference="torch.distributed._functional_collectives.all_to_all_single_autograd",
            status="no API; a pattern of DeepSpeed-Ulysses. torch's context_parallel is experimental, and fails on CPUs (2.13)",
            twin="tf:context",
            options=options.ContextOptions,
            refuses=refusals.NO_SWITCH | refusals.PARTS_OF_SUMS,
        ),
        over_ranks(
            name="ep",
            summary="Each rank has some of the experts of each block; tokens go to the ranks that have theirs, and back.",
            goal="memory: experts, 1/N each",
            data_split=SHARD_PER_RANK,
            model_split=Answer("partial", "the experts, whole ones to a rank; everything else is on every rank"),
            axes=("expert", "data"),
            cost=ep,
            reference="torch.distributed._functional_collectives.all_to_all_single_autograd",
            status="no API; a pattern of GShard and Megatron-LM, of collectives that torch calls private",
            twin="tf:expert",
            cost_as_measured=ep_as_routed,
            measures=measures.EXPERTS,
            refuses=refusals.NO_SWITCH | refusals.AT_OWNERS,
        ),
        *by_calls.ROWS,
        pipelined(
            name="hybrid",
            summary="A mesh of any axes: pipelines of stages, split inside, by positions and experts, replicated or sharded.",
            goal="models too large for any single axis",
            data_split=Answer(
                "yes", "one contiguous shard per pipeline, then into micro-batches; by positions along context"
            ),
            model_split=Answer(
                "yes", "layers along pipe, their inside along tensor, experts along expert, the rest along shard"
            ),
            hardware="many GPUs: tensor inside a machine, pipe between machines, data or shard outside; CPU cores over gloo",
            axes=("pipe", "data", "context", "shard", "expert", "tensor"),
            cost=hybrid,
            options=options.HybridOptions,
            reference="torch.distributed.device_mesh, pipelining, tensor.parallel, fsdp.fully_shard",
            status="alpha; each part as in pp, tp and fsdp; DDP inside pipelines fails or is silently wrong (2.13): not used",
            needs=needs.check_three_dimensions,
            refuses=refusals.NO_SWITCH | refusals.SCHEDULED | refusals.PARTS_OF_MODELS,
            danger_of_open_ports=dangers.UNPICKLES,
        ),
    ),
)
