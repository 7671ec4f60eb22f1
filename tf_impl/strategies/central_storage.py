"""CentralStorageStrategy: the variables are on one device, the replicas on others, which read them at every use.

Replicated: nothing at rest. Split: the batch.
Sent: every parameter to every replica (of a table, the rows that it looks up), and every gradient back: 2P a replica.
Use it when the optimizer state does not fit the devices that compute, and the host's memory holds it.
"""

import tensorflow as tf

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.tf_impl.devices import kind, use_devices
from samestep.tf_impl.program import Parts, TrainingProgram


def build(run: Run) -> TrainingProgram:
    """Builds the program of the one process: its compute devices, and the CPU device that holds the variables."""
    *compute, store = use_devices(run, run.num_devices, stores=1)
    full_name = f"/job:localhost/replica:0/task:0/device:{store}"  # `CPU:0` is not its only name: this is how variables spell it
    strategy = tf.distribute.experimental.CentralStorageStrategy(compute, full_name)
    hardware = Hardware(note=f"{kind(compute)} of one process, variables on {store}")
    return TrainingProgram(run, Parts(strategy, hardware))
