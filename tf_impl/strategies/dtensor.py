"""DTensor: one program over full tensors on a mesh data x tensor; TensorFlow shards them and puts the collectives in.

Replicated: along data the parameters, along tensor the batch. Split: the batch along data; along tensor every
parameter of the split table: tables by rows, linear layers by column, then by row (Megatron).
Sent: gradients all-reduced along data; along tensor an activation per pair of layers each way, tables and logits in full.
Use it when a layer does not fit on one device, or to mix both axes without writing one collective.
"""

import os

import tensorflow as tf
from tensorflow.experimental import dtensor

from samestep.common.program import Hardware
from samestep.common.strategy import Run
from samestep.common.workload.split import even_split_table
from samestep.tf_impl.devices import kind, use_devices
from samestep.tf_impl.dtensor.layouts import Layouts
from samestep.tf_impl.dtensor.program import DTensorProgram
from samestep.tf_impl.rows.options import DTensorOptions


def build(run: Run[DTensorOptions]) -> DTensorProgram:
    """Builds the program of one client, which drives its share of the devices."""
    clients, tensor = run.options.clients, run.mesh.tensor
    axes = [("data", run.mesh.data), ("tensor", tensor)]
    devices = use_devices(run, run.num_devices // clients)
    if clients > 1:
        device_type = devices[0].partition(":")[0]
        _identify_client()
        dtensor.initialize_accelerator_system(device_type)
        mesh = dtensor.create_distributed_mesh(axes, device_type=device_type)
    else:
        mesh = dtensor.create_mesh(axes, devices=devices)
    layouts = Layouts(mesh, even_split_table(run.workload.model, tensor) if tensor > 1 else {})
    note = f"{kind(devices)} of {f'{clients} processes' if clients > 1 else 'one process'}"
    return DTensorProgram(run, layouts, Hardware(note=note, backend="grpc" if clients > 1 else "memory"))


def _identify_client() -> None:
    """Sets the variables that DTensor reads; they repeat what TF_CONFIG says."""
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    jobs = task.cluster_spec().job_tasks(task.task_type)
    os.environ["DTENSOR_CLIENT_ID"] = str(task.task_id)
    os.environ["DTENSOR_NUM_CLIENTS"] = str(len(jobs))
    os.environ["DTENSOR_JOB_NAME"] = task.task_type
    os.environ["DTENSOR_JOBS"] = ",".join(jobs)
