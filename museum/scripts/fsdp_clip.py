"""Shards a model with FullyShardedDataParallel and clips its gradient, by its own method or by torch's function."""

import argparse
import warnings

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--own-method", action="store_true")
given = parser.parse_args()

warnings.simplefilter("ignore")
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
model = FullyShardedDataParallel(layers, device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank + 1)
for step in range(6):
    inputs, targets = torch.randn(8, 8, generator=generator), torch.randint(4, (8,), generator=generator)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    if given.own_method:
        model.clip_grad_norm_(0.1)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
torch.distributed.destroy_process_group()
