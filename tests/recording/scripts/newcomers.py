"""Scripts as newcomers write them: newcomers.py KIND [WORD...], where a word is a refactoring or a mistake."""

import sys

import torch
from torch import nn
from torch.nn import functional

kind, *words = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, texts, returns = torch.randn(32, 6), torch.randn(32, 4), torch.randn(32)
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
BATCHES = [slice(start, start + 8) for start in range(0, 32, 8)]


class Pairs(nn.Module):
    """Images and texts, with a temperature that is learned."""

    def __init__(self):
        super().__init__()
        self.image, self.text, self.scale = nn.Linear(6, 8), nn.Linear(4, 8), nn.Parameter(torch.tensor(2.66))

    def forward(self, images, words):
        image, text = (functional.normalize(each, dim=-1) for each in (self.image(images), self.text(words)))
        return self.scale.exp() * image @ text.T


def temperature():
    pairs, labels = Pairs(), torch.arange(8)
    optimizer = torch.optim.AdamW(pairs.parameters(), lr=0.005)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(pairs(inputs[part], texts[part]), labels).backward()
        optimizer.step()
        if "free" not in words:
            pairs.scale.data.clamp_(0, 2.64)


def critics():
    """An actor and a critic, which is called for its value once more where that has the wrong shape."""
    critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam([*model.parameters(), *critic.parameters()], lr=0.01)
    for part in BATCHES:
        value = critic(inputs[part]).squeeze(-1)
        advantage = (returns[part] - value).detach()
        value = critic(inputs[part]) if "column" in words else value
        errors = value - returns[part]
        optimizer.zero_grad()
        (errors.square().mean() - (model(inputs[part]).log_softmax(1)[:, 0] * advantage).mean()).backward()
        optimizer.step()


globals()[kind]()
