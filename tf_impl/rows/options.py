"""The options of TensorFlow's rows. Imports no framework."""

import dataclasses
import re

from samestep.common.errors import ConfigError
from samestep.common.flags import flag
from samestep.common.mesh import GATHER, HEADS
from samestep.common.request import MAX_PROCESSES, StrategyOptions
from samestep.tf_impl.tpu.probe import grpc_address
from samestep.tf_impl.tpu.tpu_topology import GENERATIONS, Topology


@dataclasses.dataclass(frozen=True)
class MirroredOptions(StrategyOptions):
    """The option of mirrored: how it sums the gradients."""

    reduce: str = flag(
        "auto",
        "how gradients are summed; auto is ring between CPU devices and nccl between GPUs",
        choices=("auto", "ring", "reduction_to_one_device", "hierarchical_copy", "nccl"),
    )


@dataclasses.dataclass(frozen=True)
class ContextOptions(StrategyOptions):
    """The option of the axis `context`: what attention layers exchange along it."""

    attention_exchange: str = flag(
        HEADS,
        "what replicas exchange in attention layers: heads trades positions for heads by all-to-all; gather gathers keys and "
        "values; torch:cp also has ring",
        choices=(HEADS, GATHER),
    )

    @property
    def gathers_keys(self) -> bool:
        """Whether keys and values are gathered, and attention is computed again in the backward pass."""
        return self.attention_exchange == GATHER


@dataclasses.dataclass(frozen=True)
class DTensorOptions(StrategyOptions):
    """The option of dtensor: how many processes drive its devices."""

    clients: int = flag(1, "number of processes that share the devices", least=1, most=MAX_PROCESSES)


@dataclasses.dataclass(frozen=True)
class ParameterServerOptions(StrategyOptions):
    """The options of parameter_server: its number of servers, and whether workers wait for each other."""

    parameter_servers: int = flag(
        1,
        "number of processes that hold the variables; tables are split among them by rows",
        least=1,
        most=MAX_PROCESSES,
    )
    consistency: str = flag(
        "serial",
        "serial makes one update per step, on the global batch; async makes one per worker, on its shard, without waiting",
        choices=("serial", "async"),
    )

    @property
    def is_serial(self) -> bool:
        """Whether a step makes one update on the global batch, and not one for each worker."""
        return self.consistency == "serial"


@dataclasses.dataclass(frozen=True)
class TpuOptions(StrategyOptions):
    """The options of tpu: where the TPU is, or for which TPU the step is compiled."""

    tpu: str | None = flag(
        None,
        "the TPU to train on: local, grpc://HOST:PORT or the name of a Cloud TPU (default: XLA on CPU emulates one)",
    )
    tpu_topology: str | None = flag(
        None,
        f"only compile the step, for a TPU ({', '.join(GENERATIONS)}) with this grid of chips, as in v5e:2x2",
    )

    def __post_init__(self) -> None:
        if self.tpu is not None and self.tpu.startswith("grpc://"):
            grpc_address(self.tpu)
        elif self.tpu is not None and not re.fullmatch("[A-Za-z0-9-]+", self.tpu):
            raise ConfigError(f"--tpu is '{self.tpu}'; give local, grpc://HOST:PORT or the name of a Cloud TPU.")
        if self.tpu_topology is not None:
            Topology.parse(self.tpu_topology)
            if self.tpu is not None:
                raise ConfigError(
                    f"--tpu {self.tpu} trains and --tpu-topology {self.tpu_topology} only compiles; give one of them."
                )

    @property
    def compiled_cores(self) -> int:
        """The number of cores that the step is compiled for, or 0 if it is run."""
        return 0 if self.tpu_topology is None else Topology.parse(self.tpu_topology).cores
