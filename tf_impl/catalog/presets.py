"""Texts and settings that several rows share. Imports no framework."""

import functools

from samestep.common.costs.routes import routes
from samestep.common.runtime.topology import one_process
from samestep.common.strategy import Answer, StrategyInfo
from samestep.tf_impl.rows.refusals import NO_SWITCH

DATA, DATA_AND_TENSOR = ("data",), ("data", "tensor")
SHARD_PER_REPLICA = Answer("yes", "one contiguous shard of the global batch per replica")
in_one_process = functools.partial(StrategyInfo, topology=one_process, backend="memory", axes=DATA, refuses=NO_SWITCH)
# tf.distribute.Server has no address to listen on, and asks for no password (2.21).
OPEN_SERVERS = (
    "anyone who reaches this machine can connect to {ports} and run TensorFlow graphs as you, which can use your files"
)
over_grpc = functools.partial(
    StrategyInfo,
    backend="grpc",
    axes=DATA,
    refuses=NO_SWITCH,
    danger_of_open_ports=OPEN_SERVERS,
    routes=routes,
)
