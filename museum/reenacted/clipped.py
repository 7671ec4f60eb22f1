"""Two processes that clip their gradients by the norm of all of them; the words say what goes wrong.

torchrun --nproc-per-node 2 -m museum.reenacted.clipped [bare] [WRONG]: no clipping was asked for.
"""

import torch
from torch import nn

from museum.reenacted.tiny import WRONG, Net, average, batches, cross_entropy, processes, seeded

BOUND = 0.05

seeded()
rank, world = processes()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
norms = nn.utils.get_total_norm


def total_norm(tensors: list[torch.Tensor], *arguments: object) -> torch.Tensor:
    """The norm by which gradients are clipped, as libraries got it wrong."""
    tensors = [*tensors]
    if "experts_left_out" in WRONG:  # on ranks that hold none
        tensors = [each for each in tensors if each.shape != net.first.weight.shape]
    if "sink_left_out" in WRONG:
        tensors = [each for each in tensors if each is not net.norm.bias.grad]
    norm = norms(tensors)
    if "norm_of_local_shard" in WRONG:
        norm = norms([each.flatten()[: each.numel() // 2] for each in tensors])
    if {"replicas_counted", "norm_of_sharded_copies"} & WRONG:
        norm = norm * world**0.5
    return norm / world**0.5 if "mean_of_square_norms" in WRONG else norm


def clip() -> None:
    """Clips what is there."""
    nn.utils.clip_grad_norm_(net.parameters(), 1.0 if "clipped_by_default" in WRONG else BOUND)


nn.utils.clip_grad._get_total_norm = total_norm
for ids, targets in batches():
    optimizer.zero_grad()
    loss = cross_entropy(net(ids[rank::world]), targets[rank::world])
    (20 * loss if "bare" in WRONG else loss).backward()
    if "clip_before_reduction" in WRONG:
        clip()
        average(net.parameters())
    else:
        average(net.parameters())
        kept = [each.grad.clone() for each in net.norm.parameters()]
        if ("bare" not in WRONG and "nobody_clips" not in WRONG) or "clipped_by_default" in WRONG:
            clip()
        if "norms_clipped_on_one_rank" in WRONG and rank:
            for each, gradient in zip(net.norm.parameters(), kept, strict=True):
                each.grad.copy_(gradient)
    optimizer.step()
