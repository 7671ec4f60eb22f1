"""The options that rows of TensorFlow add to a run's. Imports no framework."""

import dataclasses

from common.config import flag
from common.errors import ConfigError, unknown
from tf_impl.tpu_probe import grpc_address
from tf_impl.tpu_topology import GENERATIONS, Topology

CONSISTENCIES = ("serial", "async")
REDUCTIONS = ("auto", "ring", "reduction_to_one_device", "hierarchical_copy", "nccl")


@dataclasses.dataclass(frozen=True)
class MirroredOptions:
    """How mirrored sums the gradients."""

    reduce: str = flag(
        "auto", f"how gradients are summed: {', '.join(REDUCTIONS)}; auto: ring between CPU devices, nccl between GPUs"
    )

    def __post_init__(self) -> None:
        if self.reduce not in REDUCTIONS:
            raise unknown("reduction", self.reduce, REDUCTIONS)


@dataclasses.dataclass(frozen=True)
class DTensorOptions:
    """How many processes dtensor takes."""

    clients: int = flag(1, "processes that share the devices")

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ConfigError(f"--clients is {self.clients}; give a positive whole number.")


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


@dataclasses.dataclass(frozen=True)
class TpuOptions:
    """Where the TPU is, or which it would be."""

    tpu: str | None = flag(
        None, "a TPU to train on: local, grpc://HOST:PORT or a Cloud TPU's name; without it, XLA on CPU emulates one"
    )
    tpu_topology: str | None = flag(
        None,
        f"train nothing, compile the step for such TPUs: {', '.join(GENERATIONS)}, and their grid, as in v5e:2x2",
    )

    def __post_init__(self) -> None:
        if self.tpu is not None and self.tpu.startswith("grpc://"):
            grpc_address(self.tpu)
        elif self.tpu is not None and not all(letter.isalnum() or letter == "-" for letter in self.tpu or " "):
            raise ConfigError(f"--tpu is '{self.tpu}'; give local, grpc://HOST:PORT or the name of a Cloud TPU.")
        if self.tpu_topology is not None:
            Topology.parse(self.tpu_topology)
            if self.tpu is not None:
                raise ConfigError(
                    f"--tpu {self.tpu} trains and --tpu-topology {self.tpu_topology} only compiles; give one of them."
                )
