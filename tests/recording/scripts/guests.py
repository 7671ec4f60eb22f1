"""Scripts as guests write them: guests.py KIND [WORD...], where a word is a refactoring or a mistake."""

import sys

import torch
from torch import nn
from torch.nn import functional

kind, *words = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, texts, labels = torch.randn(32, 6), torch.randn(32, 4), torch.randint(3, (32,))
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
BATCHES = [slice(start, start + 8) for start in range(0, 32, 8)]


def contrastive():
    """Images are told from texts, and texts from images, with the same targets; one of the two terms is easily lost."""
    text = nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *text.parameters()], lr=0.1)
    for part in BATCHES:
        logits = 5 * functional.normalize(model(inputs[part]), dim=1) @ functional.normalize(text(texts[part]), dim=1).T
        own = torch.arange(8)
        losses = [functional.cross_entropy(each, own) for each in (logits, logits.T)]
        optimizer.zero_grad()
        (losses[0] if "one" in words else sum(losses) / 2).backward()
        optimizer.step()


globals()[kind]()
