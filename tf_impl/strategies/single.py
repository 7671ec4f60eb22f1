"""One process, one device: the plain step, which is the baseline of every comparison.

Replicated: nothing. Split: nothing. Sent: nothing.
Use it whenever the model and the batch fit on one device, and one device is fast enough.
"""

import tensorflow as tf

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.tf_impl.devices import use_devices
from samestep.tf_impl.program import Parts, TrainingProgram


def build(run: Run) -> TrainingProgram:
    """Builds the program of the only process."""
    (device,) = use_devices(run, 1)
    return TrainingProgram(run, Parts(tf.distribute.OneDeviceStrategy(device), Hardware(note=device)))
