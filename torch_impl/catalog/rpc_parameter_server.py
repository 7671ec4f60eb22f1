"""`rpc_parameter_server` in the catalogue. Imports no framework."""

from samestep.common.costs.rpc import rpc_parameter_server, rpc_server_routes
from samestep.common.runtime.topology import ranks_and_server
from samestep.common.strategy import Answer
from samestep.torch_impl.catalog.presets import DATA, over_rpc
from samestep.torch_impl.rows import measures, needs, options

ROW = over_rpc(
    name="rpc_parameter_server",
    summary="Parameters on a server process; workers pull them, compute their shard, and push gradients back.",
    goal="huge tables; workers that need not wait",
    data_split=Answer("yes", "one contiguous shard of the global batch per worker"),
    model_split=Answer(
        "partial", "the ranker's tables on the server, its tower on the workers; other models are whole"
    ),
    hardware="CPU cores on one or more machines; one process more than devices",
    axes=DATA,
    topology=ranks_and_server,
    cost=rpc_parameter_server,
    routes=lambda run, ledger, backend: rpc_server_routes(run),
    reference="torch.distributed.rpc, rpc.functions.async_execution",
    counterpart="tf:parameter_server",
    needs=needs.check_workers,
    options=options.ConsistencyOptions,
    measures=measures.SERVER,
    synchronous=lambda chosen: chosen.is_sync,
    varies=lambda chosen: "" if chosen.is_sync else "gradients are applied in the order in which they arrive",
)
