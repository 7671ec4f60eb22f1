"""A gradient scaler, whose second step is skipped; "bare" leaves out the scaler."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled="bare" not in sys.argv)
inputs, targets = torch.randn(5, 16, 6), torch.randn(5, 16, 3)
for step in range(5):
    loss = nn.functional.mse_loss(model(inputs[step]), targets[step])
    if step == 1 and "bare" not in sys.argv:
        loss = loss * 1e38
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if "unscale" in sys.argv:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
