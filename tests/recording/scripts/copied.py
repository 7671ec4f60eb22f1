"""Without an optimizer. The ranks exchange a copy of their gradients, and their parameters keep their own; or, with "owner", one
rank gets the sum of a parameter's gradients, updates it and sends it to the others."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
inputs, targets = torch.randn(40, 6), torch.randint(3, (40,))
rank, world = 0, 1
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
for step in range(4):
    batch = torch.arange(8 * step + rank, 8 * step + 8, world)
    net.zero_grad()
    nn.functional.cross_entropy(net(inputs[batch]), targets[batch]).backward()
    if "owner" in sys.argv:
        for place, each in enumerate(net.parameters()):
            dist.reduce(each.grad, place % world)
            if place % world == rank:
                each.data -= 0.1 * each.grad / world
            dist.broadcast(each.data, place % world)
        continue
    copy = torch.cat([each.grad.flatten() for each in net.parameters()])
    if world > 1:
        dist.all_reduce(copy)
    parts = copy.div(world).split([each.numel() for each in net.parameters()])
    with torch.no_grad():
        for each, gradient in zip(net.parameters(), parts, strict=True):
            each -= 0.1 * gradient.view_as(each)
if world > 1:
    dist.destroy_process_group()
