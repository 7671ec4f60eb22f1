"""DTensor: one program over whole tensors on a mesh data x tensor; TensorFlow cuts them and puts the collectives in.

Replicated: along data the parameters, along tensor the batch. Split: the batch along data; along tensor every
parameter of the split table: tables by rows, linear layers by column, then by row (Megatron).
Sent: gradients all-reduced along data; along tensor an activation per pair of layers each way, tables and logits whole.
Use it when a layer does not fit one device, or to mix both axes without writing one collective.
"""

import json
import os

from tensorflow.experimental import dtensor

from common.config import RunConfig
from common.mesh import Mesh
from common.runtime.topology import num_devices
from common.workload.models.spec import even_split_table
from common.workload.table import Workload
from tf_impl.devices import use_devices
from tf_impl.global_program import GlobalProgram
from tf_impl.layouts import Layouts


def build(workload: Workload, config: RunConfig) -> GlobalProgram:
    """The program of one client, which drives its share of the devices."""
    asked = Mesh.parse(config.mesh or "data=1")
    axes = [("data", asked.axis("data")), ("tensor", asked.axis("tensor"))]
    clients = int(config.options["clients"])
    devices = use_devices(config, num_devices(config) // clients)
    kind = devices[0].partition(":")[0]
    if clients > 1:
        _tell_dtensor_who_i_am()
        dtensor.initialize_accelerator_system(kind)
        mesh = dtensor.create_distributed_mesh(axes, device_type=kind)
    else:
        mesh = dtensor.create_mesh(axes, devices=devices)
    tensor = asked.axis("tensor")
    layouts = Layouts(mesh, even_split_table(workload.model, tensor) if tensor > 1 else {})
    note = f"{'logical CPU devices' if kind == 'CPU' else 'GPUs'} of {clients} process{'es' if clients > 1 else ''}"
    return GlobalProgram(workload, config, layouts, note)


def _tell_dtensor_who_i_am() -> None:
    """DTensor reads its own variables; they say nothing that TF_CONFIG does not say."""
    described = json.loads(os.environ["TF_CONFIG"])
    jobs = described["cluster"][described["task"]["type"]]
    os.environ["DTENSOR_CLIENT_ID"] = str(described["task"]["index"])
    os.environ["DTENSOR_NUM_CLIENTS"] = str(len(jobs))
    os.environ["DTENSOR_JOB_NAME"] = described["task"]["type"]
    os.environ["DTENSOR_JOBS"] = ",".join(jobs)
