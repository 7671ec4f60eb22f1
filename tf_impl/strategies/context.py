"""Context parallel: each replica takes a part of the positions of every example; attention exchanges heads, or keys and values.

Replicated: parameters, gradients, optimizer state. Split: the positions of each example along `context`, the batch along `data`.
Sent: in each attention queries, keys, values and outputs, all-to-all, forward and backward, or keys and values to all replicas;
then the gradients, packed and all-reduced over both axes, since other positions are other terms of the same sum. All between the
devices of one process.
Use it for sequences whose activations do not fit on one device.
"""

import tensorflow as tf

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.tf_impl.axes.context import exchange_positions
from samestep.tf_impl.devices import kind, use_devices
from samestep.tf_impl.program import Parts, TrainingProgram


def build(run: Run) -> TrainingProgram:
    """Builds the program of the one process, over all its devices."""
    devices = use_devices(run, run.num_devices)
    strategy = tf.distribute.MirroredStrategy(devices)
    program = TrainingProgram(run, Parts(strategy, Hardware(note=f"{kind(devices)} of one process")))
    exchange_positions(run, program.model, strategy)
    return program
