"""MirroredStrategy: one process drives all devices, each with the whole model and a shard of the batch.

Replicated: parameters, gradients, optimizer. Split: the batch.
Sent: the gradients, packed and all-reduced between the devices of the process: nothing leaves it.
Use it when the model fits one device and one machine has several.
"""

from collections.abc import Sequence

import tensorflow as tf

from common.config import RunConfig
from common.errors import Unavailable
from common.runtime.topology import num_devices
from common.workload.table import Workload
from tf_impl import upstream
from tf_impl.devices import use_devices
from tf_impl.program import Parts, TrainingProgram


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of the one process, over all its devices.

    Raises:
        Unavailable: NCCL was asked for, and there are not enough GPUs.
    """
    devices = use_devices(config, num_devices(config))
    strategy = tf.distribute.MirroredStrategy(devices, _reduction(str(config.options["reduce"]), devices))
    note = "logical CPU devices of one process" if devices[0].startswith("CPU") else "GPUs of one process"
    return TrainingProgram(workload, config, Parts(strategy=strategy, device_note=note))


def _reduction(name: str, devices: Sequence[str]) -> tf.distribute.CrossDeviceOps | None:
    """How the gradients are summed; None is upstream's own choice: the ring between CPU devices, NCCL between GPUs."""
    if name == "nccl" and devices[0].startswith("CPU"):
        raise Unavailable(
            f"--reduce nccl needs {len(devices)} GPUs, and TensorFlow sees fewer; choose another --reduce."
        )
    if name == "ring" and devices[0].startswith("GPU"):
        return upstream.ring(devices)
    reductions = {
        "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
        "nccl": tf.distribute.NcclAllReduce,
    }
    return reductions[name]() if name in reductions else None
