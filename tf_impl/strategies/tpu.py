"""TPUStrategy: one process drives the cores of a TPU, each with the whole model, compiled by XLA, and a shard of the batch.

Replicated: parameters, gradients, optimizer. Split: the batch.
Sent: the gradients, all-reduced between the cores; without --tpu, packed, between logical devices of the CPU.
Use it on a TPU; without one, to see whether XLA compiles a model and it takes the same step, never how fast.

Without `--tpu` it is an emulation, tested like every strategy. With it, `_cores` follows TensorFlow's guide: no line of
that function has ever run on a TPU.
"""

import tensorflow as tf

from common.config import RunConfig
from common.errors import Unavailable
from common.runtime.topology import num_devices
from common.workload.table import Workload
from tf_impl.devices import use_cpu
from tf_impl.program import Parts, TrainingProgram
from tf_impl.tpu_probe import probe


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
