"""A model with batch normalisation, on two processes or one; the words say what goes wrong.

torchrun --nproc-per-node 2 -m museum.reenacted.normalised [frozen] [WRONG]: its statistics are to stand still.
"""

import torch
from torch import nn

from museum.reenacted.tiny import BATCH, WRONG, average, processes, seeded

FEATURES = 6

seeded()
rank, world = processes()
net = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
inputs, targets = torch.randn(3, BATCH, FEATURES), torch.randn(3, BATCH, 3)


def set_modes() -> None:
    """Sets the normalisation to the statistics of the batch, or to those that it has."""
    net.train()
    if "frozen" in WRONG:
        net[1].eval()


for x, y in zip(inputs, targets, strict=True):
    set_modes()
    optimizer.zero_grad()
    own, wanted = (x[rank::world], y[rank::world]) if world > 1 else (x, y)
    loss = nn.functional.mse_loss(net(own), wanted)
    loss.backward()
    average(net.parameters())
    optimizer.step()
    with torch.no_grad():
        if {"recomputed_forward", "frozen_statistics_move"} & WRONG:  # once more, in training mode
            net.train()
            net[1](net[0](own))
        if "last_part_only" in WRONG:
            net[1].running_mean.mul_(0.9).add_(net[0](own[-2:]).mean(0), alpha=0.1)
        if "statistics_not_copied" in WRONG:
            net[1].running_var.fill_(1.0)
