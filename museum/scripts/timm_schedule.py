"""Warms up for three epochs and then follows a cosine, with timm's schedule."""

import argparse
import importlib.util
import sys
import types

import torch


def without_its_imports(name: str) -> None:
    """Lets parts of a package be imported without its `__init__`, which needs compiled operators of torchvision."""
    package = types.ModuleType(name)
    package.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
    sys.modules[name] = package


without_its_imports("timm")
from timm.scheduler.cosine_lr import CosineLRScheduler

parser = argparse.ArgumentParser()
parser.add_argument("--warmup-prefix", action="store_true", help="begin the cosine after the warm-up")
given = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(16, 8), torch.randint(2, (16,))
schedule = CosineLRScheduler(
    optimizer, t_initial=12, warmup_t=3, warmup_lr_init=0.01, warmup_prefix=given.warmup_prefix
)
for epoch in range(12):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    schedule.step(epoch + 1)
    print(f"epoch {epoch} loss {loss.item():.4f}")
