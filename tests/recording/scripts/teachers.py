"""A model and a teacher that follows it, which the script calls and no optimizer updates: teachers.py plain | fsdp1 | fsdp2."""

import copy
import os
import sys

import torch
from torch import distributed, nn

layout = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)
rank, world = (int(os.environ.get(name, each)) for name, each in (("RANK", 0), ("WORLD_SIZE", 1)))
inputs = torch.randn(32, 6)
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
teacher = copy.deepcopy(model)
kept = copy.deepcopy(model) if layout == "plain" else None


def shared(network):
    """The network, whose linear layers are sharded each for itself."""
    if layout == "plain":
        return network
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    if layout == "fsdp1":
        policy = ModuleWrapPolicy({nn.Linear})
        return FullyShardedDataParallel(network, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    mesh = init_device_mesh("cpu", (world,))
    for each in (network[0], network[3], network):
        fully_shard(each, mesh=mesh)
    return network


if world > 1:
    distributed.init_process_group("gloo")
model, teacher = shared(model), shared(teacher)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for start in range(0, 32, 8):
    own = inputs[start + rank * 8 // world : start + (rank + 1) * 8 // world]
    with torch.no_grad():
        teacher(own)
    optimizer.zero_grad()
    model(own).square().mean().backward()
    optimizer.step()
    if layout == "fsdp2":
        teacher.reshard()
    with torch.no_grad():
        for follower, each in zip(teacher.parameters(), model.parameters(), strict=True):
            follower.lerp_(each, 0.01)
if world > 1:
    distributed.barrier()
    distributed.destroy_process_group()
