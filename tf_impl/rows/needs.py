"""What TensorFlow's rows refuse before anything starts. Imports no framework."""

from samestep.common.errors import ConfigError
from samestep.common.features.experts.balance import balance_of
from samestep.common.features.used import layers_apart, refuse_exchange, running_buffers, takes_keys
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice, spell_exchanges
from samestep.common.workload.models.spec import ignores_targets
from samestep.tf_impl.rows.options import DTensorOptions, MirroredOptions, ParameterServerOptions, TpuOptions
from samestep.tf_impl.tpu.probe import probe
from samestep.tf_impl.tpu.tpu_topology import require_compiler


def check_exchange(run: Run) -> None:
    """Refuses to exchange compressed gradients one by one, and statistics inside what XLA compiles.

    Raises:
        ConfigError: Both were asked for.
    """
    if run.techniques.compile and run.num_devices > 1:
        refuse_exchange(run, "XLA compiles each replica alone; leave out --compile")
    if run.techniques.overlap and (own := spell_exchanges(run.techniques)):
        raise ConfigError(
            f"{run.name} exchanges gradients all together with {own[0]}; leave out --overlap or {own[0]}."
        )


def check_reduction(run: Run[MirroredOptions]) -> None:
    """Refuses a reduction that forgets a device, or that would not be used.

    TensorFlow 2.21's hierarchical copy makes two groups of N // 2 devices: of an odd number it drops the last.

    Raises:
        ConfigError: The number of devices is odd, or gradients are copied and should be all-reduced one by one, or are
            compressed.
    """
    check_exchange(run)
    if run.options.reduce != "auto" and (own := spell_exchanges(run.techniques)):
        raise ConfigError(f"{own[0]} exchanges in its own way; leave out --reduce {run.options.reduce}.")
    if run.techniques.overlap and run.options.reduce in ("reduction_to_one_device", "hierarchical_copy"):
        raise ConfigError(
            f"--overlap all-reduces each gradient on its own, and --reduce {run.options.reduce} copies; leave one of them out."
        )
    if run.options.reduce == "hierarchical_copy" and run.num_devices % 2:
        raise ConfigError(
            f"--reduce hierarchical_copy on {run.num_devices} devices would silently drop the last one's gradients; "
            "use an even number of devices, or another --reduce."
        )


def check_central(run: Run) -> None:
    """Refuses replicas that would write a variable of which there is only one copy.

    Keras makes running statistics without an aggregation, and one copy cannot take two values (Keras 3.15).

    Raises:
        ConfigError: The user's model keeps running statistics.
    """
    refuse_exchange(run, "its replicas share one copy of each variable, and exchange nothing but through it")
    if apart := layers_apart(run):
        raise ConfigError(
            f"{run.name} has one copy of each variable, and its replicas may not write the running statistics of "
            f"{apart[0]}; add --batch-norm frozen, or choose tf:mirrored."
        )


def check_layouts(run: Run[DTensorOptions]) -> None:
    """Refuses the models of users, whose variables have no layouts, and clients with unequal numbers of devices.

    Raises:
        ConfigError: The model is the user's, or the devices do not divide among the clients.
    """
    if not run.workload.model.facts.is_built_here:
        raise ConfigError(
            f"{run.name} needs variables with a layout, and the layers of {run.workload.name} make plain ones (Keras 3 has no "
            f"others); choose another strategy."
        )
    clients = run.options.clients
    if run.num_devices % clients:
        raise ConfigError(
            f"{run.num_devices} devices do not divide among --clients {clients}; use a multiple of {clients}."
        )


def check_servers(run: Run[ParameterServerOptions]) -> None:
    """Refuses servers that would hold nothing: tables are cut by rows, every other parameter is on one server.

    Raises:
        ConfigError: There are more servers than parts, or workers would have to exchange statistics.
    """
    if not run.options.is_serial or balance_of(run.workload.model):
        refuse_exchange(run, "its workers do not wait for each other")
    params = run.workload.model.params().values()
    most = max([len(params), *(param.shape[0] for param in params if param.lookups)])
    if run.options.parameter_servers > most:
        raise ConfigError(
            f"--parameter-servers {run.options.parameter_servers} are more than the {most} parts that {run.workload.name} "
            f"can be cut into; give at most {most}."
        )


def check_cores(run: Run[TpuOptions]) -> None:
    """Refuses a mesh that cannot be trained on, or a step that cannot be compiled for the cores that were named.

    Raises:
        ConfigError: The mesh or the step is one of these.
    """
    refuse_exchange(run, "XLA compiles each replica alone")
    cores = run.options.compiled_cores
    given = f"--tpu-topology {run.options.tpu_topology}"
    if cores and not run.optimizer.is_elementwise:
        raise ConfigError(f"{given} compiles elementwise updates only; choose --optimizer adamw, or leave it out.")
    if not cores and run.num_devices > run.mesh.replicas:
        raise ConfigError(
            f"tf:tpu trains along data only, not on {run.mesh}; --tpu-topology compiles for a mesh with tensor, and "
            "tf:dtensor trains on one."
        )
    if cores and run.num_devices != cores:
        raise ConfigError(
            f"{given} has {cores} core{'s' if cores > 1 else ''}, not {run.num_devices}; leave out --devices, or give "
            f"--devices {cores} or a --mesh of {cores}."
        )
    if cores and not run.workload.model.facts.is_built_here:
        raise ConfigError(f"{given} compiles our own models only; leave it out to train {run.workload.name}.")
    if cores and (takes_keys(run.workload.model) or ignores_targets(run.workload.model)):
        raise ConfigError(
            f"{given} compiles no step that depends on which examples it takes; leave out +dropout= and +ignored=."
        )
    if cores and running_buffers(run.workload.model) is not None:
        raise ConfigError(f"{given} compiles a step without buffers; leave out +norm=.")
    if cores and computed_twice(run):
        raise ConfigError(f"{given} compiles a step that keeps its activations; leave out --recompute.")
    if cores and run.dtype != "float32":
        raise ConfigError(f"{given} compiles in float32: a TPU has no {run.dtype}; leave out --dtype.")


def require_tpu(run: Run[TpuOptions]) -> None:
    """Makes sure that the TPU, or the TPU's compiler, is there.

    Raises:
        Unavailable: The TPU or its compiler is not there, as in `probe` and `require_compiler`.
    """
    if run.options.tpu is not None:
        probe(run.options.tpu)
    if run.options.tpu_topology is not None:
        require_compiler()
