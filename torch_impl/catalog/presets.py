"""What several rows have in common. Imports no framework."""

import functools

from samestep.common.costs import textbook
from samestep.common.costs.routes import routes
from samestep.common.runtime.topology import one_process, ranks
from samestep.common.strategy import Answer, StrategyInfo
from samestep.torch_impl.rows import dangers, measures, options, refusals

DATA, PIPE = ("data",), ("pipe",)
SHARDED = ("shard", "data", "context", "expert")
ANY_MESH = ("pipe", "data", "context", "shard", "expert", "tensor")
SHARD_PER_RANK = Answer("yes", "one contiguous shard of the global batch per rank")
WHOLE_MODEL = Answer("no", "every rank holds the whole model")
WHOLE_BATCH = Answer("no", "the whole batch goes through every stage")
EQUAL_STAGES = Answer("yes", "contiguous stages of layers, of about equal FLOPs")
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
    textbook=functools.partial(textbook.zero, stage=0),
)
pipelined = functools.partial(
    layer_parallel,
    options=options.PipelineOptions,
    measures=measures.PIPELINE,
    danger_of_open_ports=dangers.UNPICKLES,
)
over_rpc = functools.partial(
    StrategyInfo,
    danger_of_open_ports=dangers.UNPICKLES_CALLS,
    backend="tensorpipe",
    status="maintenance; upstream calls the RPC package stable and in maintenance mode",
    refuses=refusals.NO_WHOLE_GRADIENT,
)
