"""L-BFGS, which calls its closure several times a step; "cast" has its products in bf16, and no pass before the first step."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(6, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6)
inputs = torch.randn(16, 6)
targets = inputs.sum(1, keepdim=True)


def closure():
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, "cast" in sys.argv):
        loss = nn.functional.mse_loss(model(inputs).float(), targets)
    loss.backward()
    return loss


for _ in range(3):
    optimizer.step(closure)
