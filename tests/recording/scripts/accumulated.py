"""Four micro-batches a step, or the same batch at once if "whole" is given."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(5, 16, 6), torch.randn(5, 16, 3)
micro_batches = 1 if "whole" in sys.argv else 4
for batch, target in zip(inputs, targets, strict=True):
    optimizer.zero_grad()
    for x, y in zip(batch.chunk(micro_batches), target.chunk(micro_batches), strict=True):
        (nn.functional.mse_loss(model(x), y) / micro_batches).backward()
    optimizer.step()
