"""The rows whose processes call each other. Imports no framework."""

import functools

from samestep.common.costs.rpc import rpc, rpc_parameter_server
from samestep.common.runtime.topology import ranks, ranks_and_server
from samestep.common.strategy import Answer, StrategyInfo
from samestep.torch_impl.rows import dangers, measures, needs, options, refusals

WHOLE_BATCH = Answer("no", "the whole batch goes through every stage")
EQUAL_STAGES = Answer("yes", "contiguous stages of layers, of about equal FLOPs")
over_rpc = functools.partial(
    StrategyInfo,
    danger_of_open_ports=dangers.UNPICKLES_CALLS,
    backend="tensorpipe",
    status="maintenance; upstream calls the RPC package stable and in maintenance mode",
    refuses=refusals.NO_WHOLE_GRADIENT,
)
ROWS = (
    over_rpc(
        name="rpc",
        summary="Stages on RPC workers, driven by one of them; autograd and the optimizer reach across the calls.",
        goal="irregular models that no pipeline takes",
        data_split=WHOLE_BATCH,
        model_split=EQUAL_STAGES,
        hardware="CPU cores on one or more machines; GPUs need a device map",
        axes=("pipe",),
        topology=ranks,
        cost=rpc,
        refuses=refusals.BY_CALLS,
        reference="torch.distributed.rpc, torch.distributed.autograd, torch.distributed.optim.DistributedOptimizer",
        needs=needs.check_stages,
    ),
    over_rpc(
        name="rpc_parameter_server",
        summary="Parameters on a server process; workers pull them, compute their shard, and push gradients back.",
        goal="huge tables; workers that need not wait",
        data_split=Answer("yes", "one contiguous shard of the global batch per worker"),
        model_split=Answer("partial", "the ranker's tables on the server, its tower on the workers; others whole"),
        hardware="CPU cores on one or more machines; one process more than devices",
        axes=("data",),
        topology=ranks_and_server,
        cost=rpc_parameter_server,
        refuses=refusals.NO_WHOLE_GRADIENT,
        reference="torch.distributed.rpc, rpc.functions.async_execution",
        twin="tf:parameter_server",
        needs=needs.check_workers,
        options=options.ConsistencyOptions,
        measures=measures.SERVER,
        synchronous=lambda chosen: chosen.is_sync,
        varies=lambda chosen: "" if chosen.is_sync else "gradients are applied in the order in which they arrive",
    ),
)
