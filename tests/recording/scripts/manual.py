"""No optimizer: the script writes p.data, after clipping; "halves" has two backward passes, "grad" calls autograd.grad.

"norm" has the statistics of batches, which change in each pass. "idle" has an optimizer that never steps.
"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
norm = [nn.BatchNorm1d(8)] if "norm" in sys.argv else []
model = nn.Sequential(nn.Linear(6, 8), *norm, nn.Tanh(), nn.Linear(8, 3))
zeroing = torch.optim.SGD(model.parameters(), lr=1.0) if "idle" in sys.argv else model
inputs, targets = torch.randn(5, 16, 6), torch.randn(5, 16, 3)
for batch, target in zip(inputs, targets, strict=True):
    if "grad" in sys.argv:
        parameters = [*model.parameters()]
        gradients = torch.autograd.grad(nn.functional.mse_loss(model(batch), target), parameters)
        coefficient = min(1.0, 0.1 / (1e-6 + sum(each.square().sum() for each in gradients) ** 0.5))
        with torch.no_grad():
            for p, gradient in zip(parameters, gradients, strict=True):
                p -= 0.1 * gradient.mul_(coefficient)
        continue
    zeroing.zero_grad()
    parts = 2 if "halves" in sys.argv else 1
    for x, y in zip(batch.chunk(parts), target.chunk(parts), strict=True):
        (nn.functional.mse_loss(model(x), y) / parts).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)
