"""One process, one device: the plain step, against which every other row is read.

Replicated: nothing. Split: nothing. Sent: nothing.
Use it whenever model and batch fit one device and it is fast enough.
"""

import tensorflow as tf

from common.config import RunConfig
from common.workload.table import Workload
from tf_impl.devices import use_devices
from tf_impl.program import Parts, TrainingProgram


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of the one process there is."""
    (device,) = use_devices(config, 1)
    return TrainingProgram(
        workload, config, Parts(strategy=tf.distribute.OneDeviceStrategy(device), device_note=device)
    )
