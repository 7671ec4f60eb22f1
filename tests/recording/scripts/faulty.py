"""What the arguments name: "no_sync" sets DDP's flag after the forward pass, "same" gives both ranks the same examples, "padded"
uses a sampler that pads, "fast" steps the schedule twice, "unused" has a layer without a use, "alone" calls the model within DDP,
"left_out" adds up the gradients without rank 1's; "-" is right."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
rank, world = 0, 1
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
model = nn.ModuleDict({"used": nn.Linear(6, 3)} | ({"unused": nn.Linear(2, 2)} if "unused" in sys.argv else {}))
model.forward = lambda x: model["used"](x)
net = nn.parallel.DistributedDataParallel(model) if world > 1 else model
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=100)
data = TensorDataset(
    torch.randn(15 if "padded" in sys.argv else 16, 6), torch.randn(15 if "padded" in sys.argv else 16, 3)
)
sampler = DistributedSampler(data, 1 if "same" in sys.argv else world, 0 if "same" in sys.argv else rank)
for _ in range(2):
    for inputs, targets in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        for half in range(2):
            called = model if "alone" in sys.argv or "left_out" in sys.argv else net
            loss = nn.functional.mse_loss(called(inputs[half::2]), targets[half::2]) / 2
            if "no_sync" in sys.argv:
                net.require_backward_grad_sync = half == 1
            loss.backward()
        if "left_out" in sys.argv:
            for parameter in net.parameters():
                parameter.grad *= rank == 0
                dist.all_reduce(parameter.grad)
        optimizer.step()
        for _ in range(2 if "fast" in sys.argv else 1):
            schedule.step()
if dist.is_initialized():
    dist.destroy_process_group()
