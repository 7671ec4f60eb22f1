"""The strategies of TensorFlow, one row each. Imports no framework."""

import dataclasses

from common.config import RunConfig, flag
from common.errors import ConfigError, unknown
from common.evidence.laws.copied import centralized, mirrored
from common.evidence.laws.parameter_servers import parameter_servers
from common.evidence.laws.per_core import per_core
from common.evidence.laws.replicated import replicated
from common.evidence.laws.tensor_split import tensor_split
from common.mesh import Mesh
from common.runtime.topology import clients, num_devices, one_process, served, workers
from common.strategy import Answer, FrameworkInfo, Measure, StrategyInfo
from common.workload.models.spec import even_split_table
from common.workload.models.transformer import TransformerSpec
from common.workload.table import Workload
from tf_impl.tpu_options import TpuOptions, compiled_cores, emulates, possible

REDUCTIONS = ("auto", "ring", "reduction_to_one_device", "hierarchical_copy", "nccl")
CONSISTENCIES = ("serial", "async")


@dataclasses.dataclass(frozen=True)
class MirroredOptions:
    """How mirrored sums the gradients."""

    reduce: str = flag(
        "auto", f"how gradients are summed: {', '.join(REDUCTIONS)}; auto: ring between CPU devices, nccl between GPUs"
    )

    def __post_init__(self) -> None:
        if self.reduce not in REDUCTIONS:
            raise unknown("reduction", self.reduce, REDUCTIONS)


def _even_devices(workload: Workload, config: RunConfig) -> None:
    """Tensorflow 2.21's hierarchical copy makes two groups of N // 2 devices: of an odd number it drops the last."""
    devices = Mesh.parse(config.mesh or "data=1").size
    if config.options["reduce"] == "hierarchical_copy" and devices % 2:
        raise ConfigError(
            f"--reduce hierarchical_copy on {devices} devices would silently drop the last one's gradients; "
            "use an even number of devices, or another --reduce."
        )


@dataclasses.dataclass(frozen=True)
class ParameterServerOptions:
    """Over how many servers parameter_server spreads the variables, and whether workers wait for each other."""

    parameter_servers: int = flag(1, "processes that hold the variables; tables are cut by rows over them")
    consistency: str = flag(
        "serial",
        f"one of {', '.join(CONSISTENCIES)}: updates of the global batch one by one, or one of each worker's shard, as they come",
    )

    def __post_init__(self) -> None:
        if self.parameter_servers < 1:
            raise ConfigError(f"--parameter-servers is {self.parameter_servers}; give a positive whole number.")
        if self.consistency not in CONSISTENCIES:
            raise unknown("consistency", self.consistency, CONSISTENCIES)


def _one_after_the_other(config: RunConfig) -> bool:
    return config.options["consistency"] == "serial"


@dataclasses.dataclass(frozen=True)
class DTensorOptions:
    """How many processes dtensor takes."""

    clients: int = flag(1, "processes that share the devices")

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ConfigError(f"--clients is {self.clients}; give a positive whole number.")


def _even_parts(workload: Workload, config: RunConfig) -> None:
    """Every client has as many devices, every device along tensor as much of each layer, and whole heads."""
    mesh, shared = Mesh.parse(config.mesh or "data=1"), int(config.options["clients"] or 1)
    if num_devices(config) % shared:
        raise ConfigError(f"{mesh.size} devices do not divide among --clients {shared}; use a multiple of {shared}.")
    tensor = mesh.axis("tensor")
    if isinstance(workload.model, TransformerSpec) and workload.model.heads % tensor:
        raise ConfigError(
            f"{workload.model.heads} heads do not divide among tensor={tensor}; use a tensor axis that divides them."
        )
    even_split_table(workload.model, tensor)


FRAMEWORK = FrameworkInfo(
    module="tensorflow",
    extra="tf",
    environment={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "1"},
    preload=("tf_impl.program",),
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
            reference="tf.function, tf.GradientTape",
            status="stable",
            twin="torch:single",
        ),
        StrategyInfo(
            name="mirrored",
            summary="One process drives all devices; gradients are packed and all-reduced between them.",
            goal="speed, when the model fits one device of one machine",
            data_split=Answer("yes", "one contiguous shard of the global batch per replica"),
            model_split=Answer("no", "every replica holds the whole model"),
            synchronous=True,
            hardware="several GPUs of one machine; logical devices of one CPU",
            axes=("data",),
            topology=one_process,
            law=mirrored,
            backend="memory",
            reference="tf.distribute.MirroredStrategy",
            status="stable",
            twin="torch:ddp",
            options=MirroredOptions,
            needs=_even_devices,
        ),
        StrategyInfo(
            name="multi_worker_mirrored",
            summary="One process per device, found through TF_CONFIG; gradients are packed and all-reduced in a ring.",
            goal="speed, when the model fits one device",
            data_split=Answer("yes", "one contiguous shard of the global batch per worker"),
            model_split=Answer("no", "every worker holds the whole model"),
            synchronous=True,
            hardware="GPUs of several machines; CPU cores over gRPC",
            axes=("data",),
            topology=workers,
            law=replicated,
            backend="grpc",
            reference="tf.distribute.MultiWorkerMirroredStrategy",
            status="stable; Keras 3.15's fit fails under it, so that a custom loop is the only way",
            twin="torch:ddp",
        ),
        StrategyInfo(
            name="central_storage",
            summary="One process drives all devices; the variables are on the CPU, and the replicas read them there.",
            goal="memory: the devices that compute hold no optimizer slots",
            data_split=Answer("yes", "one contiguous shard of the global batch per replica"),
            model_split=Answer("no", "one device stores the whole model, each replica uses all of it"),
            synchronous=True,
            hardware="several GPUs of one machine and its memory; logical devices of one CPU",
            axes=("data",),
            topology=one_process,
            law=centralized,
            backend="memory",
            reference="tf.distribute.experimental.CentralStorageStrategy",
            status="experimental since 2.0; Keras fit logs a wrong loss under it",
            twin="",
        ),
        StrategyInfo(
            name="dtensor",
            summary="One program over whole tensors on a mesh data x tensor; TensorFlow cuts it as the layouts say.",
            goal="memory and speed, when a layer does not fit one device",
            data_split=Answer("flexible", "along the axis data, in contiguous shards"),
            model_split=Answer(
                "flexible", "along the axis tensor: tables by rows, linear layers by column, then by row"
            ),
            synchronous=True,
            hardware="GPUs or TPU cores of one or more machines; logical devices of one CPU",
            axes=("data", "tensor"),
            topology=clients,
            law=tensor_split,
            backend="grpc",
            reference="tf.experimental.dtensor",
            status="experimental; some operations are silently wrong when cut, see docs/tensorflow.md",
            twin="",
            options=DTensorOptions,
            needs=_even_parts,
        ),
        StrategyInfo(
            name="parameter_server",
            summary="Servers hold the variables; a chief hands updates to the workers, one at a time or as they come.",
            goal="tables that fit no single machine; workers that come and go",
            data_split=Answer(
                "flexible", "serial: a step is one worker's, on the whole batch; async: a shard per worker"
            ),
            model_split=Answer("yes", "tables by rows over the servers, the other variables one by one"),
            synchronous=True,
            hardware="many machines with much memory, and CPU or GPU workers",
            axes=("data",),
            topology=served,
            law=parameter_servers,
            backend="grpc",
            reference="tf.distribute.ParameterServerStrategy, tf.distribute.coordinator.ClusterCoordinator",
            status="experimental for custom loops; Keras 3 fit is not supported under it",
            twin="torch:rpc_parameter_server",
            options=ParameterServerOptions,
            measures=(
                Measure(
                    "staleness", "updates", "mean age of the parameters to which a worker's gradients were applied"
                ),
                Measure("updates_applied", "updates", "those that were handed out, every one of them applied"),
                Measure("updates_repeated", "updates", "those applied again, at least in part: their worker had died"),
            ),
            waits=_one_after_the_other,
        ),
        StrategyInfo(
            name="tpu",
            summary="XLA compiles the forward and backward pass of each core; gradients are summed between the cores.",
            goal="speed, on TPUs",
            data_split=Answer("yes", "one contiguous shard of the global batch per core"),
            model_split=Answer("partial", "not in training; a step that is only compiled, along the axis tensor"),
            synchronous=True,
            hardware="the cores of a TPU; without one, logical devices of one CPU",
            axes=("data", "tensor"),
            topology=one_process,
            law=per_core,
            backend="memory",
            reference="tf.distribute.TPUStrategy",
            status="stable; the newest wheel with TPU kernels, tensorflow-tpu, is of TensorFlow 2.20",
            twin="",
            options=TpuOptions,
            emulated="emulated: XLA on CPU",
            emulates=emulates,
            compiled_cores=compiled_cores,
            needs=possible,
        ),
    ),
)
