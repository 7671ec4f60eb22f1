"""MultiWorkerMirroredStrategy: one process per device, each with the whole model and a shard of the batch.

Replicated: parameters, gradients, optimizer state. Split: the batch.
Sent: the gradients, packed and all-reduced around a ring over gRPC: 2(N-1)/N of their bytes a worker.
Use it when the model fits on one device and the devices are spread over machines.
"""

import numpy as np
import tensorflow as tf

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.common.tree import add_up
from samestep.tf_impl.devices import is_cpu, use_own_device
from samestep.tf_impl.program import Parts, TrainingProgram


def build(run: Run) -> TrainingProgram:
    """Builds the program of one worker; TF_CONFIG says which, and where the others are."""
    device = use_own_device(run)
    kinds = tf.distribute.experimental.CommunicationImplementation
    hint = kinds.RING if is_cpu(device) else kinds.AUTO
    options = tf.distribute.experimental.CommunicationOptions(implementation=hint)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    gather = tf.function(lambda own: strategy.gather(own, axis=0), autograph=False, reduce_retracing=True)
    parts = Parts(
        strategy=strategy,
        # Also between GPUs: TensorFlow takes NCCL only where the hint is NCCL itself (CollectiveParamResolverLocal).
        hardware=Hardware(note="one process per device", backend="grpc"),
        sum_losses=lambda own: add_up(gather(tf.constant(own[None])).numpy(), np.add) if len(own) else own,
        join=lambda own: gather(own[0]).numpy(),
    )
    return TrainingProgram(run, parts)
