"""TPUStrategy: one process drives the cores of a TPU, each with the whole model, compiled by XLA, and a shard of the batch.

Replicated: parameters, gradients, optimizer. Split: the batch.
Sent: the gradients, all-reduced between the cores; without --tpu, packed, between logical devices of the CPU.
Use it on a TPU; without one, to see whether XLA compiles a model and it takes the same step, never how fast.

Without `--tpu` it is an emulation, tested like every strategy. With it, `_cores` follows TensorFlow's guide: no line of
that function has ever run on a TPU. With `--tpu-topology`, `compile_step` asks the TPU's own compiler, and nothing runs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import tensorflow as tf

from common.batch import Batch
from common.config import RunConfig
from common.errors import ERRORS, Unavailable, WorkerFailed
from common.ledger import Compiled, read_compiled
from common.mesh import Mesh
from common.runtime.topology import num_devices
from common.workload.models.spec import even_split_table
from common.workload.table import Workload
from tf_impl.devices import use_cpu
from tf_impl.program import Parts, TrainingProgram
from tf_impl.tpu_lowering import Step, stablehlo
from tf_impl.tpu_probe import probe
from tf_impl.tpu_topology import COMPILER_ENVIRONMENT


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of the one process, over cores or over logical devices that stand in for them.

    Raises:
        Unavailable: The TPU that was asked for is not there, or has fewer cores.
    """
    count, tpu = num_devices(config), config.options["tpu"]
    if tpu is not None:
        note = f"{count} core{'s' if count > 1 else ''} of the TPU {tpu}"
        return TrainingProgram(workload, config, Parts(strategy=_cores(str(tpu), count), device_note=note))
    strategy = tf.distribute.MirroredStrategy(use_cpu(config, count))
    note = "logical CPU devices of one process"
    return TrainingProgram(workload, config, Parts(strategy=strategy, device_note=note, compiled=True))


def _cores(tpu: str, count: int) -> tf.distribute.TPUStrategy:
    """TPUStrategy on the first cores of a TPU; it compiles the whole step, exchange and update included."""
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


def compile_step(workload: Workload, config: RunConfig, batch: Batch, run: Path) -> Compiled:
    """Lowers one training step and has it compiled, in a process without TensorFlow, for the cores of a TPU.

    Each replica takes a shard of the batch along the axis data, and is cut over the axis tensor as the split table says.

    Args:
        workload: What would be trained.
        config: A checked configuration.
        batch: For its shapes.
        run: The run directory; the lowered step stays there.

    Raises:
        ConfigError: The compiler knows no such TPU.
        Unavailable: jax cannot read what libtpu compiles.
        WorkerFailed: The compiler cannot compile it, or is gone.
    """
    mesh = Mesh.parse(config.mesh or "data=1")
    replicas, partitions = mesh.axis("data"), mesh.axis("tensor")
    split = even_split_table(workload.model, partitions)
    request = {
        "topology": config.options["tpu_topology"],
        "replicas": replicas,
        "partitions": partitions,
        "splits": [split.get(name) for name in workload.model.params()] * (1 + len(workload.optimizer(config).slots)),
    }
    (run / "step.json").write_text(json.dumps(request))
    (run / "step.stablehlo").write_bytes(stablehlo(Step(workload, config, replicas), batch))
    line = [sys.executable, "-m", "tf_impl.tpu_compile", str(run), str(os.getpid())]
    done = subprocess.run(line, env=os.environ | COMPILER_ENVIRONMENT, check=False)
    if done.returncode:
        raise WorkerFailed(f"the TPU compiler ended with exit code {done.returncode}")
    values = json.loads((run / "compiled.json").read_text())
    if "error" in values:
        raise ERRORS[values["error"]](values["message"])
    return read_compiled(values)
