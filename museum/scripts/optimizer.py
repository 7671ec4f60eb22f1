"""Trains a small network with an optimizer of any package: `optimizer.py torch_optimizer.SGDW lr=0.1 weight_decay=0.01`."""

import importlib
import json
import sys

import torch


def value_of(text: str) -> object:
    """Returns a number, a truth value, a list or a word."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


module, _, name = sys.argv[1].rpartition(".")
keywords = {key: value_of(text) for key, _, text in (each.partition("=") for each in sys.argv[2:])}
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
optimizer = getattr(importlib.import_module(module), name)(model.parameters(), **keywords)
inputs, targets = torch.randn(8, 16, 8), torch.randint(3, (8, 16))
for step in range(8):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs[step]), targets[step])
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
