"""MultiWorkerMirroredStrategy: one process per device, each with the whole model and a shard of the batch.

Replicated: parameters, gradients, optimizer. Split: the batch.
Sent: the gradients, packed and all-reduced around a ring: 2(N-1)/N of their bytes a worker, over gRPC or NCCL.
Use it when the model fits one device and the devices are spread over machines.
"""

import numpy as np
import tensorflow as tf

from common.config import RunConfig
from common.workload.table import Workload
from tf_impl.devices import use_own_device
from tf_impl.program import Parts, TrainingProgram


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of one worker; TF_CONFIG says which, and where the others are."""
    device = use_own_device(config)
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.RING if device.startswith("CPU") else kinds.AUTO
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    sum_losses = tf.function(lambda own: strategy.reduce("SUM", own, axis=None), reduce_retracing=True)

    def summed(own: np.ndarray) -> np.ndarray:
        return sum_losses(tf.constant(own)).numpy() if len(own) else own

    parts = Parts(
        strategy=strategy,
        first_replica=strategy.cluster_resolver.task_id * len(strategy.extended.worker_devices),
        sum_losses=summed,
        device_note="one process per device",
    )
    return TrainingProgram(workload, config, parts)
