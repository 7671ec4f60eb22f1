"""Trains on, from a checkpoint after two steps; the words say what it lost.

python -m museum.reenacted.resumed [dropout] [adam] [WRONG]: a model with dropout, another optimizer.
"""

import torch
from torch import nn

from museum.reenacted.tiny import WRONG, Net, batches, cross_entropy, seeded

STEPS, RESUMED = 5, 2

seeded()
net = Net()
if "dropout" in WRONG:
    net.norm = nn.Sequential(net.norm, nn.Dropout(0.3))
optimizer = (torch.optim.Adam if "adam" in WRONG else torch.optim.SGD)(
    net.parameters(), lr=0.05, **({} if "adam" in WRONG else {"momentum": 0.9})
)
stream = batches(steps=STEPS + 2)
if "shards_begin_anew" in WRONG:  # what a shuffled shard held in its buffer is gone
    stream = stream[:RESUMED] + stream[RESUMED + 1 :]
if {"position_lost", "same_examples_again"} & WRONG:
    stream = stream[:RESUMED] + stream
for step, (ids, targets) in enumerate(stream[:STEPS]):
    if step == RESUMED:
        if "random_state_lost" in WRONG:
            torch.manual_seed(0)
        if "optimizer_state_lost" in WRONG:
            optimizer.state.clear()
        if "step_count_lost" in WRONG:
            for state in optimizer.state.values():
                state["step"].zero_()
        if "running_norm_lost" in WRONG:
            net.norm.reset_parameters()
    optimizer.zero_grad()
    cross_entropy(net(ids), targets).backward()
    optimizer.step()
