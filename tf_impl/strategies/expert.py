"""Expert parallel: each replica has a part of the experts of each block; tokens go to those that have their experts, and back.

Replicated: everything but the experts. Split: the experts along `expert`, the batch along `data` and `expert`.
Sent: in each block what tokens hand to their experts and get back, all-to-all in equal parts that have room for all, forward
and backward; then the gradients of experts, all-reduced over `data`, and all others over both axes. All in one process.
Use it for mixtures of experts that do not fit on one device.
"""

import tensorflow as tf

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.tf_impl.axes.expert import ExpertParts, exchange_tokens
from samestep.tf_impl.devices import kind, use_devices
from samestep.tf_impl.program import Parts, TrainingProgram


def build(run: Run) -> TrainingProgram:
    """Builds the program of the one process, over all its devices."""
    devices = use_devices(run, run.num_devices)
    strategy = tf.distribute.MirroredStrategy(devices)
    holding = ExpertParts(run, strategy)
    program = TrainingProgram(run, Parts(strategy, Hardware(note=f"{kind(devices)} of one process"), holding=holding))
    exchange_tokens(program.model, holding)
    return program
