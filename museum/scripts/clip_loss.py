"""Learns pictures and texts together on two processes, with the loss of open_clip."""

import argparse
import importlib.util
import sys
import types

import torch


def without_its_imports(name: str) -> None:
    """Lets parts of a package be imported without its `__init__`, which needs packages of data sets and models."""
    package = types.ModuleType(name)
    package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
    sys.modules[name] = package


without_its_imports("open_clip")
from open_clip.loss import ClipLoss

parser = argparse.ArgumentParser()
parser.add_argument("--local-loss", action="store_true")
parser.add_argument("--gather-with-grad", action="store_true")
given = parser.parse_args()

torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)


class Towers(torch.nn.Module):
    """A tower for pictures and one for texts."""

    def __init__(self) -> None:
        """Makes the layers."""
        super().__init__()
        self.pictures, self.texts = (torch.nn.Linear(8, 4) for _ in range(2))

    def forward(self, pictures: torch.Tensor, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the features of both."""
        features = self.pictures(pictures), self.texts(texts)
        return torch.nn.functional.normalize(features[0], dim=-1), torch.nn.functional.normalize(features[1], dim=-1)


model = torch.nn.parallel.DistributedDataParallel(Towers())
loss_of = ClipLoss(given.local_loss, given.gather_with_grad, rank=rank, world_size=world)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pictures, texts = torch.randn(2, 6, 16, 8)
for step in range(6):
    optimizer.zero_grad()
    loss = loss_of(*model(pictures[step, rank::world], texts[step, rank::world]), 5.0)
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}")
torch.distributed.destroy_process_group()
