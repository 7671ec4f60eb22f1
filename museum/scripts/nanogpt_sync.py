"""Accumulates four micro-batches under DistributedDataParallel with nanoGPT's loop, which exchanges with the last one only."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--flag-first", action="store_true", help="set the flag before the forward pass, not after it")
given = parser.parse_args()

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
model = torch.nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank + 1)
for step in range(6):
    for micro_step in range(4):
        inputs = torch.randn(4, 8, generator=generator)
        targets = torch.randint(3, (4,), generator=generator)
        if given.flag_first:
            model.require_backward_grad_sync = micro_step == 3
        loss = torch.nn.functional.cross_entropy(model(inputs), targets) / 4
        model.require_backward_grad_sync = micro_step == 3
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step} loss {loss.item() * 4:.4f}")
torch.distributed.destroy_process_group()
