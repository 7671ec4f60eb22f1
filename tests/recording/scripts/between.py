"""What scripts do between two steps: between.py KIND [WORD...], where a word is another way to do it, or a mistake."""

import itertools
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

kind, *words = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, labels = torch.randn(32, 6), torch.randint(3, (32,))
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
BATCHES = [(inputs[start : start + 8], labels[start : start + 8]) for start in range(0, 32, 8)]


def backward(batch, own):
    functional.cross_entropy(model(batch), own).backward()


def step(optimizer, batch, own):
    optimizer.zero_grad()
    backward(batch, own)
    optimizer.step()


def ahead(batches):
    """Yields each batch once the next one is there, as accelerate does."""
    yield from (one for one, _ in itertools.pairwise(itertools.chain(batches, [None])))


def loaders():
    """Passes through a DataLoader, and then steps on examples that are drawn otherwise."""
    optimizer, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(inputs, labels), 8)
    batches = ahead(loader) if "ahead" in words else loader
    for number, (batch, own) in enumerate([*loader] * 2 if "kept" in words else batches):
        if "left" in words and number == 2:
            break
        step(optimizer, batch, own)
        if "checked" in words and number == 1:
            with torch.no_grad():
                assert all(len(model(batch)) for batch, _ in loader)
    for draw in range(3):
        some = torch.arange(draw, draw + 4)
        step(optimizer, inputs[some], labels[some])


globals()[kind]()
