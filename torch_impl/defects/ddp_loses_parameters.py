"""A tensor-parallel module under DDP loses its parameters in its first forward pass.

What to do: use fully_shard for the data axis of the mesh.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

meeting = f"file://{tempfile.mkdtemp()}/store"
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
mesh = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
ddp = DistributedDataParallel(model, device_mesh=mesh["data"])
before = list(model.state_dict())
ddp(torch.ones(2, 4))
if rank == 0:
    print(f"before the forward pass: {before}; after it: {list(model.state_dict())}")
    assert list(model.state_dict()) == before, "parameters() and state_dict() lack the sharded parameters"
