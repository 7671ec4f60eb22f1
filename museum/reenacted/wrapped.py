"""DistributedDataParallel with two micro-batches a step; the words say what goes wrong.

torchrun --nproc-per-node 2 -m museum.reenacted.wrapped [WRONG]
"""

import torch
from torch import nn

from museum.reenacted.tiny import WRONG, Net, batches, cross_entropy, processes, seeded

PASSES = 2

seeded()
rank, world = processes()
net = Net()
ddp = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)


def is_synced(place: int) -> bool:
    """Whether DDP is told to exchange the gradients in the backward pass of a micro-batch."""
    if "no_sync_never_left" in WRONG:
        return False
    return place == (0 if "first_microbatch_synced" in WRONG else PASSES - 1)


for ids, targets in batches():
    optimizer.zero_grad()
    parts = zip(ids[rank::world].chunk(PASSES), targets[rank::world].chunk(PASSES), strict=True)
    for place, (x, y) in enumerate(parts):
        if "set_after_forward" not in WRONG:  # forward reads it as well
            ddp.require_backward_grad_sync = is_synced(place)
        logits = net(x) if "unwrapped_model" in WRONG else ddp(x)
        ddp.require_backward_grad_sync = is_synced(place)
        (cross_entropy(logits, y) / PASSES).backward()
    optimizer.step()
