"""MirroredStrategy: one process drives all devices, each with the whole model and a shard of the batch.

Replicated: parameters, gradients, optimizer state. Split: the batch.
Sent: the gradients, packed and all-reduced between the devices of the process: nothing leaves it.
Use it when the model fits on one device and one machine has several.
"""

from collections.abc import Sequence

import tensorflow as tf

from samestep.common.errors import Unavailable
from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.tf_impl import upstream
from samestep.tf_impl.devices import is_cpu, kind, use_devices
from samestep.tf_impl.program import Parts, TrainingProgram
from samestep.tf_impl.rows.options import MirroredOptions


def build(run: Run[MirroredOptions]) -> TrainingProgram:
    """Builds the program of the one process, over all its devices.

    Raises:
        Unavailable: NCCL was asked for, and there are not enough GPUs.
    """
    devices = use_devices(run, run.num_devices)
    strategy = tf.distribute.MirroredStrategy(devices, _reduction(run.options.reduce, devices))
    return TrainingProgram(run, Parts(strategy, Hardware(note=f"{kind(devices)} of one process")))


def _reduction(name: str, devices: Sequence[str]) -> tf.distribute.CrossDeviceOps | None:
    """Chooses how gradients are summed; None leaves it to TensorFlow: the ring between CPU devices, NCCL between GPUs."""
    if name == "nccl" and is_cpu(devices[0]):
        raise Unavailable(
            f"--reduce nccl needs {len(devices)} GPUs, and TensorFlow sees fewer; choose another --reduce."
        )
    if name == "ring" and not is_cpu(devices[0]):
        return upstream.ring(devices)
    reductions = {
        "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
        "nccl": tf.distribute.NcclAllReduce,
    }
    return reductions[name]() if name in reductions else None
