"""ParameterServerStrategy: servers hold the variables, workers compute updates of them, a chief hands the updates out.

Replicated: nothing at rest. Split: tables by rows over the servers, the other variables one by one; async: the batch.
Sent: a worker reads P and sends P of gradients back, of a table only the rows it looks up; the update runs on the server.
Use it when tables do not fit one machine, or, async, where workers come and go.
"""

import os

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.parameter_server.program import ParameterServerProgram
from samestep.tf_impl.rows.options import ParameterServerOptions

SERVING = ("worker", "ps")
INTER_OP_THREADS = 2
"""With one thread, its own choice on one core, a server waits forever for what that thread should do (2.21)."""
_LOCAL_SERVER: list[tf.distribute.Server] = []
"""The server, in the process of a worker or a server: it serves for as long as it is referenced."""


def build(run: Run[ParameterServerOptions]) -> ParameterServerProgram | None:
    """Builds the program of the chief; returns None in a worker or a server, which has begun to serve."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # else a server that is not up yet fails the run
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(run.threads)
    tf.config.threading.set_inter_op_parallelism_threads(INTER_OP_THREADS)
    if resolver.task_type in SERVING:
        threads = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=run.threads, inter_op_parallelism_threads=INTER_OP_THREADS
        )
        task = resolver.cluster_spec(), resolver.task_type, resolver.task_id
        _LOCAL_SERVER[:] = [tf.distribute.Server(*task, protocol="grpc", config=threads)]
        return None
    return ParameterServerProgram(run, resolver)
