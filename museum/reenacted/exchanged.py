"""Two processes that add up their gradients by hand, one half of the batch each; the words say what goes wrong.

torchrun --nproc-per-node 2 -m museum.reenacted.exchanged [uneven] [root] [WRONG]: uneven numbers of targets, a root.
"""

import torch

from museum.reenacted.tiny import BATCH, LENGTH, WRONG, Net, average, batches, cross_entropy, processes, seeded

seeded()
rank, world = processes()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
LOCAL = {  # what goes wrong -> the parameters that are not exchanged
    "no_aggregation": "",
    "hooks_dropped": "",
    "group_of_one": "",
    "norm_of_sequence_parallel": "norm",
    "copies_of_output_norm": "norm.bias",
    "replicated_rows": "first.weight",
    "replicated_operand": "head",
}


def loss_of(ids: torch.Tensor, targets: torch.Tensor, counted: float) -> torch.Tensor:
    """The loss of a process, whose mean over processes is that of the batch."""
    if "mean_of_each_rank" in WRONG:
        return cross_entropy(net(ids), targets)
    if "root" in WRONG:  # right in one process only
        return cross_entropy(net(ids), targets).sqrt()
    loss = cross_entropy(net(ids), targets, "sum") / counted * world
    if {"divided_by_world_by_hand", "divided_by_total_and_averaged"} & WRONG:
        loss = loss / world
    return loss * (BATCH * LENGTH / world) if "normalizer_dropped" in WRONG else loss


def exchange() -> None:
    """Makes the gradients those of both processes."""
    local = [prefix for word, prefix in LOCAL.items() if word in WRONG]
    average(each for name, each in net.named_parameters() if not any(name.startswith(prefix) for prefix in local))
    for name, each in net.named_parameters():
        if {"sum_of_strategy", "average_is_sum", "aggregation_is_sum", "norm_of_the_sum"} & WRONG:
            each.grad *= world
        if "scaled_by_world_not_group" in WRONG:
            each.grad /= world
        if "experts_twice" in WRONG and name.startswith("first"):
            each.grad *= world
        if "norm_by_local_part" in WRONG and name.startswith("norm"):
            each.grad /= world


for ids, targets in batches("uneven" not in WRONG):
    optimizer.zero_grad()
    loss_of(ids[rank::world], targets[rank::world], float((targets >= 0).sum())).backward()
    if "bf16_on_the_wire" in WRONG:
        for each in net.parameters():
            each.grad = each.grad.bfloat16().float()
    exchange()
    optimizer.step()
