"""The strategies of TensorFlow, one row each. Imports no framework."""

import functools

from samestep.common.catalog import FrameworkInfo
from samestep.common.costs.context import context
from samestep.common.costs.data_parallel import replicated
from samestep.common.costs.dtensor import dtensor, tpu
from samestep.common.costs.expert import expert
from samestep.common.costs.one_process import central_storage, mirrored
from samestep.common.costs.parameter_server import parameter_server
from samestep.common.costs.routes import routes
from samestep.common.costs.saved_activations import kept_tf
from samestep.common.runtime.topology import chief_workers_and_servers, clients, one_process, workers
from samestep.common.strategy import Answer, Measure, StrategyInfo
from samestep.tf_impl.rows import needs, options
from samestep.tf_impl.rows.refusals import (
    ALONE,
    ALREADY_COMPILED,
    IN_PARTS,
    NO_COLLECTIVES,
    NO_ORDER,
    NO_SWITCH,
    OWN_VARIABLES,
    REMOTE,
)

ALONG_TENSOR = Answer("flexible", "along the axis tensor: tables by rows, linear layers by column, then by row")
SHARD_PER_REPLICA = Answer("yes", "one contiguous shard of the global batch per replica")
BATCH_OR_SHARD = Answer("flexible", "serial: a step is one worker's, on the whole batch; async: a shard per worker")
in_one_process = functools.partial(
    StrategyInfo, topology=one_process, backend="memory", axes=("data",), refuses=NO_SWITCH
)
# tf.distribute.Server has no address to listen on, and asks for no password (2.21).
OPEN_SERVERS = (
    "whoever can reach this machine can connect to {ports} and run TensorFlow graphs as you, which read and write files"
)
over_grpc = functools.partial(
    StrategyInfo, backend="grpc", axes=("data",), refuses=NO_SWITCH, danger_of_open_ports=OPEN_SERVERS
)
REPEATED = "updates that were applied again, at least in part, because their worker had died"
SERVER_MEASURES = (
    Measure("staleness", "updates", "mean age of the parameters to which a worker's gradients were applied"),
    Measure("updates_applied", "updates", "updates that were handed out, each of which was applied"),
    Measure("updates_repeated", "updates", REPEATED),
)

FRAMEWORK = FrameworkInfo(
    module="tensorflow",
    title="TensorFlow",
    saved=kept_tf.saved,
    routes=routes,
    extra="tf",
    environment={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "1"},
    preload=("samestep.tf_impl.lean", "samestep.tf_impl.program"),
    preload_for_models=("keras",),
    rows=(
        in_one_process(
            name="single",
            summary="The plain step on one device: the baseline of every comparison.",
            goal="baseline",
            data_split=Answer("no", "one device takes the whole batch"),
            model_split=Answer("no", "one device holds the whole model"),
            hardware="one CPU core or one GPU",
            axes=(),
            refuses=ALONE,
            cost=replicated,
            reference="tf.function, tf.GradientTape",
            status="stable",
            twin="torch:single",
        ),
        in_one_process(
            name="mirrored",
            summary="One process drives all devices; gradients are packed and all-reduced between them.",
            goal="speed, on the devices of one machine",
            data_split=SHARD_PER_REPLICA,
            model_split=Answer("no", "every replica holds the whole model"),
            hardware="several GPUs of one machine; logical devices of one CPU",
            refuses={},
            cost=mirrored,
            reference="tf.distribute.MirroredStrategy",
            status="stable",
            twin="torch:ddp",
            options=options.MirroredOptions,
            needs=needs.check_reduction,
        ),
        over_grpc(
            name="multi_worker_mirrored",
            summary="One process per device, found through TF_CONFIG; gradients are packed and all-reduced in a ring.",
            goal="speed, when the model fits one device",
            data_split=Answer("yes", "one contiguous shard of the global batch per worker"),
            model_split=Answer("no", "every worker holds the whole model"),
            hardware="GPUs of several machines; CPU cores over gRPC",
            topology=workers,
            refuses={},
            cost=replicated,
            reference="tf.distribute.MultiWorkerMirroredStrategy",
            status="stable; Keras 3.15's fit fails under it, so a custom loop is the only way",
            twin="torch:c10d",
            needs=needs.check_exchange,
        ),
        in_one_process(
            name="central_storage",
            summary="One process drives all devices; the variables are on the CPU, and the replicas read them there.",
            goal="memory: devices hold no optimizer state",
            data_split=SHARD_PER_REPLICA,
            model_split=Answer("no", "one device stores the whole model, each replica uses all of it"),
            hardware="several GPUs of one machine and its memory; logical devices of one CPU",
            refuses=REMOTE,
            cost=central_storage,
            reference="tf.distribute.experimental.CentralStorageStrategy",
            status="experimental; has been since 2.0, and Keras fit logs a wrong loss under it",
            twin="torch:dp",
            needs=needs.check_central,
        ),
        in_one_process(
            name="context",
            summary="Each replica takes some positions of every example; attentions exchange positions for heads and back.",
            goal="memory: activations of long sequences",
            data_split=Answer("yes", "by positions, and along data by examples"),
            model_split=Answer("no", "every replica holds the whole model"),
            hardware="several GPUs of one machine; logical devices of one CPU",
            axes=("context", "data"),
            refuses=NO_SWITCH | NO_ORDER | NO_COLLECTIVES,
            cost=context,
            reference="tf.raw_ops.CollectiveAllToAllV2, tf.distribute.MirroredStrategy",
            status="no API; a pattern of DeepSpeed-Ulysses, of collectives of ours between the replicas of a stable strategy",
            twin="torch:cp",
        ),
        in_one_process(
            name="expert",
            summary="Each replica has some of the experts of each block; tokens go to those that have theirs, and back.",
            goal="memory: experts, 1/N each",
            data_split=SHARD_PER_REPLICA,
            model_split=Answer("partial", "the experts, whole ones to a replica; everything else is on every replica"),
            hardware="several GPUs of one machine; logical devices of one CPU",
            axes=("expert", "data"),
            refuses=NO_SWITCH | NO_ORDER | NO_COLLECTIVES | OWN_VARIABLES,
            cost=expert,
            reference="tf.raw_ops.CollectiveAllToAllV2, tf.distribute.MirroredStrategy",
            status="no API; a pattern of GShard, of collectives of ours between the replicas of a stable strategy",
            twin="torch:ep",
        ),
        over_grpc(
            name="dtensor",
            summary="One program over full tensors on a mesh data x tensor; TensorFlow shards them as the layouts say.",
            goal="layers that do not fit one device",
            data_split=Answer("flexible", "along the axis data, in contiguous shards"),
            model_split=ALONG_TENSOR,
            hardware="GPUs or TPU cores of one or more machines; logical devices of one CPU",
            axes=("data", "tensor"),
            topology=clients,
            refuses=IN_PARTS,
            cost=dtensor,
            reference="tf.experimental.dtensor",
            status="experimental; some operations are silently wrong when sharded, see docs/tensorflow.md",
            twin="torch:tp",
            options=options.DTensorOptions,
            needs=needs.check_layouts,
        ),
        over_grpc(
            name="parameter_server",
            summary="Servers hold the variables; a chief hands updates to the workers, one at a time or without waiting.",
            goal="huge tables; workers that come and go",
            data_split=BATCH_OR_SHARD,
            model_split=Answer("yes", "tables by rows over the servers, the other variables one by one"),
            hardware="many machines with much memory, and CPU or GPU workers",
            topology=chief_workers_and_servers,
            cuts_parameters=True,
            refuses=REMOTE,
            cost=parameter_server,
            reference="tf.distribute.ParameterServerStrategy, tf.distribute.coordinator.ClusterCoordinator",
            status="experimental; in custom loops: Keras 3 fit is not supported under it",
            twin="torch:rpc_parameter_server",
            options=options.ParameterServerOptions,
            needs=needs.check_servers,
            measures=SERVER_MEASURES,
            synchronous=lambda chosen: chosen.is_serial,
            varies=lambda chosen: "" if chosen.is_serial else "gradients are applied in the order in which they arrive",
        ),
        in_one_process(
            name="tpu",
            summary="XLA compiles the forward and backward pass of each core; gradients are summed between the cores.",
            goal="speed, on TPUs",
            data_split=Answer("yes", "one contiguous shard of the global batch per core"),
            model_split=Answer("partial", "not in training; a step that is only compiled, along the axis tensor"),
            hardware="the cores of a TPU; without one, logical devices of one CPU",
            axes=("data", "tensor"),
            refuses=ALREADY_COMPILED,
            cost=tpu,
            reference="tf.distribute.TPUStrategy",
            status="stable; the newest wheel with TPU kernels, tensorflow-tpu, is for TensorFlow 2.20",
            options=options.TpuOptions,
            emulation="emulated: XLA on CPU",
            compiled_cores=lambda chosen: chosen.compiled_cores,
            needs=needs.check_cores,
            available=needs.require_tpu,
        ),
    ),
)
