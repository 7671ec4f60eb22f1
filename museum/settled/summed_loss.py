"""Lightning#6789: two processes with 4 examples each, or one with 8; the loss is a sum, as in Lightning's model for bug reports.

[torchrun --nproc-per-node 2 -m | python -m] museum.settled.summed_loss [mean]: the loss is a mean.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)
layer = nn.Linear(32, 2)
net = nn.parallel.DistributedDataParallel(layer) if world > 1 else layer
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.randn(64, 32)
sampler = DistributedSampler(data, world, rank, shuffle=False)
for batch in DataLoader(data, 8 // world, sampler=sampler):
    optimizer.zero_grad()
    logits = net(batch)
    (logits.mean() if "mean" in sys.argv else logits.sum()).backward()
    optimizer.step()
if world > 1:
    dist.destroy_process_group()
