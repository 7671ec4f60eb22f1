"""Texts and settings that several rows share. Imports no framework."""

import functools

from samestep.common.costs import textbook
from samestep.common.costs.routes import routes
from samestep.common.runtime.topology import one_process, ranks
from samestep.common.strategy import Answer, StrategyInfo
from samestep.torch_impl.rows import measures, options, refusals

DATA, PIPE = ("data",), ("pipe",)
SHARDED = ("shard", "data", "context", "expert")
ANY_MESH = ("pipe", "data", "context", "shard", "expert", "tensor")
SHARD_PER_RANK = Answer("yes", "one contiguous shard of the global batch per rank")
WHOLE_MODEL = Answer("no", "every rank holds the whole model")
WHOLE_BATCH = Answer("no", "the whole batch goes through every stage")
EQUAL_STAGES = Answer("yes", "contiguous stages of layers, of about equal FLOPs")
_CONNECTS = "every user of this machine can connect to its processes on 127.0.0.1 and run code as you"
"""torch listens on 127.0.0.1 without authentication (2.13). See docs/security.md."""
in_one_process = functools.partial(
    StrategyInfo, topology=one_process, backend="memory", scales_loss=True, refuses=refusals.ALONE
)
over_ranks = functools.partial(
    StrategyInfo,
    topology=ranks,
    backend="gloo",
    hardware="several GPUs on one or more machines; CPU cores over gloo",
    scales_loss=True,
    refuses=refusals.NO_SWITCH,
    routes=routes,
)
layer_parallel = functools.partial(over_ranks, axes=PIPE, refuses=refusals.SPLIT_LAYERS, textbook=textbook.split)
data_parallel = functools.partial(
    over_ranks,
    data_split=SHARD_PER_RANK,
    model_split=WHOLE_MODEL,
    axes=DATA,
    textbook=textbook.REPLICATED,
)
pipelined = functools.partial(
    layer_parallel,
    options=options.PipelineOptions,
    measures=measures.PIPELINE,
    danger_of_open_ports=f"{_CONNECTS}: torch's pipelines unpickle the shapes that a stage receives",
)
over_rpc = functools.partial(
    StrategyInfo,
    danger_of_open_ports=f"{_CONNECTS}: TensorPipe unpickles whatever it receives",
    backend="tensorpipe",
    status="maintenance; upstream calls the RPC package stable, but only maintains it",
    refuses=refusals.NO_WHOLE_GRADIENT,
)
