"""CentralStorageStrategy: the variables are on one device, the replicas on others, which read them at every use.

Replicated: nothing at rest. Split: the batch.
Sent: every parameter to every replica (of a table, the rows that it looks up), and every gradient back: 2P a replica.
Use it when the optimizer's slots do not fit the devices that compute, and the host's memory holds them.
"""

import tensorflow as tf

from common.config import RunConfig
from common.runtime.topology import num_devices
from common.workload.table import Workload
from tf_impl.devices import full_name, use_devices
from tf_impl.program import Parts, TrainingProgram


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of the one process: its compute devices, and the CPU device that holds the variables."""
    *compute, store = use_devices(config, num_devices(config), stores=1)
    strategy = tf.distribute.experimental.CentralStorageStrategy(compute, full_name(store))
    kind = "logical CPU devices" if compute[0].startswith("CPU") else "GPUs"
    note = f"{kind} of one process, variables on {store}"
    return TrainingProgram(workload, config, Parts(strategy=strategy, device_note=note))
