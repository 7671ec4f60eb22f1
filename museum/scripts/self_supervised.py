"""Learns from two views of each example with a loss of lightly; started by torchrun, over the examples of all ranks."""

import importlib.util
import os
import sys
import types

import torch


def without_its_imports(name: str) -> None:
    """Lets parts of a package be imported without its `__init__`, which needs packages of data sets and models."""
    package = types.ModuleType(name)
    package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
    sys.modules[name] = package


for name in ("lightly", "lightly.loss"):
    without_its_imports(name)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if sys.argv[1] == "barlow-twins":
    from lightly.loss.barlow_twins_loss import BarlowTwinsLoss

    loss_of: torch.nn.Module = BarlowTwinsLoss(gather_distributed=world > 1)
else:
    from lightly.loss.dcl_loss import DCLLoss

    loss_of = DCLLoss()
torch.manual_seed(0)
model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
examples = torch.randn(6, 16, 8)
views = torch.stack((examples, examples + 0.1 * torch.randn(6, 16, 8)))
for step in range(6):
    optimizer.zero_grad()
    one, other = model(views[:, step, rank::world].flatten(0, 1)).chunk(2)
    loss = loss_of(one, other)
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
if world > 1:
    torch.distributed.destroy_process_group()
