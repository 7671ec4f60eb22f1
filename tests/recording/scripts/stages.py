"""Two equal stages of a pipeline, each seeded alike: in one process, or on a rank each."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)


def stage():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh())


rank = int(os.environ["RANK"]) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
model = nn.Sequential(stage(), stage()) if rank is None else stage()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(3, 8, 6), torch.randint(6, (3, 8))
if rank is not None:
    dist.init_process_group("gloo")
for given, own in zip(inputs, labels, strict=True):
    optimizer.zero_grad()
    if rank == 1:
        given = torch.empty(8, 6)
        dist.recv(given, 0)
        given.requires_grad_()
    out = model(given)
    if rank == 0:
        dist.send(out.detach(), 1)
        gradient = torch.empty(8, 6)
        dist.recv(gradient, 1)
        out.backward(gradient)
    else:
        functional.cross_entropy(out, own).backward()
    if rank == 1:
        dist.send(given.grad, 0)
    optimizer.step()
