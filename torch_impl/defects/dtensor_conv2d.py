"""PyTorch's DTensor convolves with one shard of the filters and returns that as the whole.

What to do: keep filters replicated and shard the batch only.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

meeting = f"file://{tempfile.mkdtemp()}/store"
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
mesh = dist.init_device_mesh("cpu", (2,))
images = distribute_tensor(torch.ones(1, 3, 5, 5), mesh, [Replicate()])
filters = distribute_tensor(torch.ones(8, 3, 3, 3), mesh, [Shard(0)])
output = torch.conv2d(images, filters)
if rank == 0:
    channels = output.full_tensor().shape[1]
    print(f"of 8 filters in 2 shards: {output.placements[0]!r}, shape {list(output.shape)}, but {channels} channels")
    assert channels == output.shape[1], "the full tensor lacks the channels of the other rank"
