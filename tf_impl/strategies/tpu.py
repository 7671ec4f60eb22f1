"""TPUStrategy: one process drives the cores of a TPU, each with the whole model, compiled by XLA, and a shard of the batch.

Replicated: parameters, gradients, optimizer. Split: the batch.
Sent: the gradients, all-reduced between the cores; without --tpu, packed, between logical devices of the CPU.
Use it on a TPU; without one, to see whether XLA compiles a model and it takes the same step, never how fast.

Without `--tpu` it is an emulation, tested like every strategy. With it, `_cores` follows TensorFlow's guide: no line of
that function has ever run on a TPU. With `--tpu-topology`, `compile_step` asks the TPU's own compiler, and nothing runs.
"""

import os
import subprocess
from pathlib import Path

import pydantic
import tensorflow as tf

from samestep.common.batch import Batch
from samestep.common.errors import ERRORS, Unavailable, WorkerFailed
from samestep.common.files.reading import read_json
from samestep.common.files.writing import replacing
from samestep.common.ledger import Compiled
from samestep.common.program import Hardware
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.processes import module_line
from samestep.common.strategy import Run
from samestep.common.workload.split import even_split_table
from samestep.tf_impl.devices import kind, use_cpu
from samestep.tf_impl.program import Parts, TrainingProgram
from samestep.tf_impl.rows.options import TpuOptions
from samestep.tf_impl.tpu.lowering import ReplicaStep, lower
from samestep.tf_impl.tpu.probe import probe
from samestep.tf_impl.tpu.tpu_topology import COMPILER_ENVIRONMENT


def build(run: Run[TpuOptions]) -> TrainingProgram:
    """Builds the program of the one process, over cores or over logical devices that stand in for them.

    Raises:
        Unavailable: The TPU that was asked for is not there, or has fewer cores.
    """
    count, tpu = run.num_devices, run.options.tpu
    if tpu is not None:
        hardware = Hardware(note=f"{count} core{'s' if count > 1 else ''} of the TPU {tpu}")
        return TrainingProgram(run, Parts(_cores(tpu, count), hardware))
    devices = use_cpu(run, count)
    hardware = Hardware(note=f"{kind(devices)} of one process", emulation=run.strategy.emulation)
    return TrainingProgram(run, Parts(tf.distribute.MirroredStrategy(devices), hardware, compiled=True))


def _cores(tpu: str, count: int) -> tf.distribute.TPUStrategy:
    """Makes TPUStrategy on the first cores of a TPU; it compiles the whole step, exchange and update included."""
    probe(tpu)
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
    try:
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    except tf.errors.OpError as error:
        said = error.message.strip().partition("\n")[0]
        raise Unavailable(f"--tpu {tpu} answers, but not as a TPU does: {said}; give the address of one.") from error
    cores = topology.num_tasks * topology.num_tpus_per_task
    if count > cores:
        raise Unavailable(f"--tpu {tpu} has {cores} cores, fewer than {count}; use --devices {cores}.")
    assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=count)
    return tf.distribute.TPUStrategy(resolver, experimental_device_assignment=assignment)


def compile_step(run: Run[TpuOptions], batch: Batch, directory: Path) -> Compiled:
    """Lowers one training step and has it compiled, in a process without TensorFlow, for the cores of a TPU.

    Each replica takes a shard of the batch along the axis data, and is cut over the axis tensor as the split table says.

    Args:
        run: What would be trained.
        batch: A batch, of which only the shapes count.
        directory: The run directory; the lowered step stays there.

    Raises:
        ConfigError: The compiler has no such TPU.
        Unavailable: jax cannot read what libtpu compiles.
        WorkerFailed: The compiler cannot compile it, or is gone.
    """
    replicas, partitions = run.mesh.data, run.mesh.tensor
    split = even_split_table(run.workload.model, partitions)
    request = {
        "topology": run.options.tpu_topology,
        "replicas": replicas,
        "partitions": partitions,
        "splits": [split.get(name) for name in run.workload.model.params()] * (1 + len(run.optimizer.slots)),
    }
    write_json(directory / "step.json", request)
    with replacing(directory / "step.stablehlo") as file:
        file.write(lower(ReplicaStep(run, replicas), batch))
    line = module_line("samestep.tf_impl.tpu.compile_worker", str(directory), str(os.getpid()))
    done = subprocess.run(line, env=os.environ | COMPILER_ENVIRONMENT, check=False)
    if done.returncode:
        raise WorkerFailed(f"the TPU compiler ended with exit code {done.returncode}")
    values = read_json(directory / "compiled.json")
    if isinstance(values, dict) and "error" in values:
        raise ERRORS[values["error"]](values["message"])
    return pydantic.TypeAdapter(Compiled).validate_python(values)
