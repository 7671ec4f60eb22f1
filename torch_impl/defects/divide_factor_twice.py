"""`fully_shard` applies a custom divide factor twice on a 2 x 1 mesh.

Nothing is sharded on such a mesh, because its ranks are replicas.

What to do: divide the gradients of such modules yourself after the backward pass.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

meeting = f"file://{tempfile.mkdtemp()}/store"
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)


def gradient(shape: tuple[int, int]) -> float:
    """Returns a gradient that is the sum over two ranks divided by 8, as `fully_shard` computes it."""
    layer = nn.Linear(4, 4, bias=False, dtype=torch.float64)
    fully_shard(layer, mesh=init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")))
    layer.set_gradient_divide_factor(8.0)
    layer(torch.ones(1, 4, dtype=torch.float64)).sum().backward()
    return layer.weight.grad.full_tensor()[0, 0].item()


sharded, replicated = gradient((1, 2)), gradient((2, 1))
if rank == 0:
    print(f"2 / 8 is {sharded} on two shards, and {replicated} on two replicas")
    assert sharded == replicated, "the factor has divided the gradient of replicas twice"
