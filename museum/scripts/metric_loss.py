"""Learns embeddings with a loss of pytorch_metric_learning: `metric_loss.py TripletMarginLoss smooth_loss=true`."""

import json
import sys

import torch
from pytorch_metric_learning import losses

keywords = {key: json.loads(value) for key, _, value in (each.partition("=") for each in sys.argv[2:])}
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
loss_of = getattr(losses, sys.argv[1])(**keywords)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(6, 18, 8), torch.arange(18) // 4
for step in range(6):
    optimizer.zero_grad()
    loss = loss_of(model(inputs[step]), targets)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
