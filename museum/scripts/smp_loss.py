"""Segments small pictures, a quarter of whose pixels have no label, with a loss of segmentation_models_pytorch."""

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


parser = argparse.ArgumentParser()
parser.add_argument("loss", choices=["soft-bce", "plain"])
given = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.GELU(), torch.nn.Conv2d(8, 1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pictures, targets = torch.randn(8, 3, 8, 8), torch.randint(2, (8, 1, 8, 8)).float()
targets[:, :, :2] = -100


def plain(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the mean over the pixels that have a label."""
    is_known = targets != -100
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[is_known], targets[is_known])


loss_of = plain
if given.loss == "soft-bce":
    without_its_imports("segmentation_models_pytorch")
    from segmentation_models_pytorch.losses import SoftBCEWithLogitsLoss

    loss_of = SoftBCEWithLogitsLoss(ignore_index=-100)
for step in range(8):
    optimizer.zero_grad()
    loss = loss_of(model(pictures), targets)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
