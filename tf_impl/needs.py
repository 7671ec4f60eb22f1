"""What TensorFlow's rows refuse before anything starts. Imports no framework."""

from collections.abc import Mapping

from common.config import RunConfig, Scalar
from common.errors import ConfigError
from common.mesh import Mesh
from common.runtime.topology import num_devices
from common.workload.models.spec import even_split_table
from common.workload.models.transformer import TransformerSpec
from common.workload.table import Workload
from tf_impl.tpu_probe import reachable
from tf_impl.tpu_topology import Topology, require_compiler


def even_devices(workload: Workload, config: RunConfig) -> None:
    """Refuses a reduction that forgets a device.

    TensorFlow 2.21's hierarchical copy makes two groups of N // 2 devices: of an odd number it drops the last.

    Raises:
        ConfigError: It would.
    """
    devices = Mesh.parse(config.mesh or "data=1").size
    if config.options["reduce"] == "hierarchical_copy" and devices % 2:
        raise ConfigError(
            f"--reduce hierarchical_copy on {devices} devices would silently drop the last one's gradients; "
            "use an even number of devices, or another --reduce."
        )


def even_parts(workload: Workload, config: RunConfig) -> None:
    """Refuses clients with unequal numbers of devices, and a tensor axis that cuts a layer or a head unequally.

    Raises:
        ConfigError: It does.
    """
    mesh, shared = Mesh.parse(config.mesh or "data=1"), int(config.options["clients"] or 1)
    if num_devices(config) % shared:
        raise ConfigError(f"{mesh.size} devices do not divide among --clients {shared}; use a multiple of {shared}.")
    tensor = mesh.axis("tensor")
    if isinstance(workload.model, TransformerSpec) and workload.model.heads % tensor:
        raise ConfigError(
            f"{workload.model.heads} heads do not divide among tensor={tensor}; use a tensor axis that divides them."
        )
    even_split_table(workload.model, tensor)


def consistent(config: RunConfig) -> bool:
    """Whether a parameter server takes the updates of the global batch one by one."""
    return config.options["consistency"] == "serial"


def emulates(config: RunConfig) -> bool:
    """Whether the CPU stands in for a TPU."""
    return config.options.get("tpu") is None and not compiled_cores(config.options)


def compiled_cores(options: Mapping[str, Scalar]) -> int:
    """The cores that the step is compiled for; 0: it is run."""
    named = options.get("tpu_topology")
    return 0 if named is None else Topology.parse(str(named)).cores


def possible_tpu(workload: Workload, config: RunConfig) -> None:
    """Refuses a TPU that cannot train, or be compiled for, as asked.

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
