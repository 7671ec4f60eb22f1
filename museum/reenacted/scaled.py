"""Two processes with a gradient scaler; the words say what goes wrong.

torchrun --nproc-per-node 2 -m museum.reenacted.scaled [clip] [WRONG]: clipping.
"""

import torch
from torch import nn

from museum.reenacted.tiny import WRONG, Net, average, batches, cross_entropy, processes, seeded

seeded()
rank, world = processes()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scale = 2048.0 if "scale_by_rank" in WRONG and rank else 1024.0
scaler = torch.amp.GradScaler("cpu", init_scale=scale)
for step, (ids, targets) in enumerate(batches()):
    optimizer.zero_grad()
    scaler.scale(cross_entropy(net(ids[rank::world]), targets[rank::world])).backward()
    average(net.parameters())
    if "clip" in WRONG:
        if not {"clipped_before_unscale", "plugin_clips_scaled"} & WRONG:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
    if "infinity_seen_on_one_rank" in WRONG and step == 1 and rank:
        net.head.weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    scaler.update()
