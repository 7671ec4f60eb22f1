"""Trains two epochs with DistributedDataParallel and a DistributedSampler."""

import argparse

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--set-epoch", action="store_true")
parser.add_argument("--examples", type=int, default=32)
parser.add_argument(
    "--no-padding", action="store_true", help="each rank takes every second example of the last batch too"
)
parser.add_argument("--unshuffled", action="store_true")
given = parser.parse_args()

torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(given.examples, 8), torch.randint(2, (given.examples,)))
sampler = DistributedSampler(data, shuffle=not given.unshuffled)
if given.no_padding:
    sampler = range(rank, given.examples, world)
for epoch in range(2):
    if given.set_epoch:
        sampler.set_epoch(epoch)
    for inputs, targets in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
torch.distributed.destroy_process_group()
