"""Targets of a loss that is a module, computed in float32; "wrong" has one wrong, and "rounded" another last bit of all."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
distance = nn.SmoothL1Loss()
inputs, targets = torch.randn(3, 6, 4), (torch.rand(3, 6, 2) + 2).bfloat16().float()
if "rounded" in sys.argv:
    targets = torch.nextafter(targets, torch.tensor(9.0))
if "wrong" in sys.argv:
    targets[2, 3] += 0.5
for x, y in zip(inputs, targets, strict=True):
    optimizer.zero_grad()
    distance(model(x), y).backward()
    optimizer.step()
