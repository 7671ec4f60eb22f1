"""A model with a second head that some passes use; the words say what goes wrong.

torchrun --nproc-per-node 2 -m museum.reenacted.branched [WRONG]
"""

import torch
from torch import nn

from museum.reenacted.tiny import CLASSES, WIDTH, WRONG, Net, average, batches, cross_entropy, processes, seeded

PASSES = 2

seeded()
rank, world = processes()
net = Net()
net.extra = nn.Linear(WIDTH, CLASSES)
net.forward = lambda ids, is_extra, plain=net.forward: plain(ids) + (net.extra(net.table(ids)) if is_extra else 0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def is_exchanged(name: str) -> bool:
    """Whether the gradient of a parameter is exchanged: hooks of the last backward pass start it."""
    is_unused_last = name.startswith("extra")
    return not (is_unused_last and {"unused_in_last_microbatch", "unused_without_error"} & WRONG)


for ids, targets in batches():
    optimizer.zero_grad(set_to_none=False)
    parts = zip(ids[rank::world].chunk(PASSES), targets[rank::world].chunk(PASSES), strict=True)
    for place, (x, y) in enumerate(parts):
        (cross_entropy(net(x, place == 0), y) / PASSES).backward()
    average(each for name, each in net.named_parameters() if is_exchanged(name))
    optimizer.step()
