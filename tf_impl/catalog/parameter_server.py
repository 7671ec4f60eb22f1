"""`parameter_server` in the catalogue. Imports no framework."""

from samestep.common.costs.parameter_server import parameter_server, server_routes
from samestep.common.runtime.topology import chief_workers_and_servers
from samestep.common.strategy import Answer, Measure
from samestep.tf_impl.catalog.presets import over_grpc
from samestep.tf_impl.rows import needs, options
from samestep.tf_impl.rows.refusals import REMOTE

ROW = over_grpc(
    name="parameter_server",
    summary="Servers hold the variables; a chief hands updates to the workers, one at a time or without waiting.",
    goal="huge tables; workers that come and go",
    data_split=Answer("flexible", "serial: a step is one worker's, on the whole batch; async: a shard per worker"),
    model_split=Answer("yes", "tables by rows over the servers, the other variables one by one"),
    hardware="many machines with much memory, and CPU or GPU workers",
    topology=chief_workers_and_servers,
    cuts_parameters=True,
    refuses=REMOTE,
    cost=parameter_server,
    routes=lambda run, ledger, backend: server_routes(run),
    reference="tf.distribute.ParameterServerStrategy, tf.distribute.coordinator.ClusterCoordinator",
    status="experimental; for custom loops only, since Keras 3 does not support fit under it",
    counterpart="torch:rpc_parameter_server",
    options=options.ParameterServerOptions,
    needs=needs.check_servers,
    measures=(
        Measure("staleness", "updates", "mean age of the parameters to which a worker's gradients were applied"),
        Measure("updates_applied", "updates", "updates that were handed out, each of which was applied"),
        Measure(
            "updates_repeated",
            "updates",
            "updates that were applied again, at least in part, because their worker had died",
        ),
    ),
    synchronous=lambda chosen: chosen.is_serial,
    varies=lambda chosen: "" if chosen.is_serial else "gradients are applied in the order in which they arrive",
)
