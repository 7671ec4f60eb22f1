"""What the row `tpu` takes: a TPU that is there, one to compile for, or neither. Imports no framework."""

import dataclasses
from collections.abc import Mapping

from common.config import RunConfig, Scalar, flag
from common.errors import ConfigError
from common.mesh import Mesh
from common.workload.models.spec import even_split_table
from common.workload.table import Workload
from tf_impl.tpu_probe import grpc_address, reachable
from tf_impl.tpu_topology import GENERATIONS, Topology, require_compiler


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


def emulates(config: RunConfig) -> bool:
    """Whether the CPU stands in for a TPU."""
    return config.options.get("tpu") is None and not compiled_cores(config.options)


def compiled_cores(options: Mapping[str, Scalar]) -> int:
    """The cores that the step is compiled for; 0: it is run."""
    named = options.get("tpu_topology")
    return 0 if named is None else Topology.parse(str(named)).cores


def possible(workload: Workload, config: RunConfig) -> None:
    """What the row needs of a checked configuration.

    Raises:
        ConfigError: It contradicts itself.
        Unavailable: The TPU is not there, or the TPU's compiler is not.
    """
    mesh = Mesh.parse(config.mesh or "data=1")
    if not compiled_cores(config.options):
        if mesh.axis("tensor") > 1:
            raise ConfigError(
                f"tf:tpu trains along data only, not on {mesh}; --tpu-topology compiles for a mesh with tensor, and "
                "tf:dtensor trains on one."
            )
        reachable(workload, config)
        return
    _compilable(workload, config, mesh)
    if not config.prepare:
        require_compiler()


def _compilable(workload: Workload, config: RunConfig, mesh: Mesh) -> None:
    named, cores = config.options["tpu_topology"], compiled_cores(config.options)
    given = f"--tpu-topology {named}"
    if mesh.size != cores:
        raise ConfigError(
            f"{given} has {cores} core{'s' if cores > 1 else ''}, not {mesh.size}; leave out --devices, or give "
            f"--devices {cores} or a --mesh of {cores}."
        )
    if config.dtype != "float32":
        raise ConfigError(f"{given} compiles in float32: a TPU has no {config.dtype}; leave out --dtype.")
    if config.start_from is not None:
        raise ConfigError(f"{given} compiles and trains nothing, so that nothing continues; leave out --start-from.")
    even_split_table(workload.model, mesh.axis("tensor"))
