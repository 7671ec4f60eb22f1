"""Shards a model with FSDP2 and makes its optimizer after that, or before."""

import argparse

import torch
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer-first", action="store_true")
given = parser.parse_args()

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
if given.optimizer_first:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
fully_shard(model)
if not given.optimizer_first:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(rank + 1)
for step in range(6):
    inputs, targets = torch.randn(8, 8, generator=generator), torch.randint(4, (8,), generator=generator)
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    model.zero_grad()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
torch.distributed.destroy_process_group()
