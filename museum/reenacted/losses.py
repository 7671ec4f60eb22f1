"""The loss of a step, or its gradient, in one process; the words say what goes wrong.

python -m museum.reenacted.losses [uneven] [tied] [dropout] [WRONG]: uneven numbers of targets, a table that is the head as well.
"""

import torch
from torch import nn

from museum.reenacted.tiny import IGNORED, WIDTH, WRONG, Net, batches, cross_entropy, seeded

seeded()
net = Net(is_tied="tied" in WRONG)
if "dropout" in WRONG:
    net.norm = nn.Sequential(net.norm, nn.Dropout(0.3))
if {"untied_by_meta_device", "untied_by_pipeline"} & WRONG:
    net.head.weight = nn.Parameter(net.head.weight.detach().clone())
if "initialized_by_other_seed" in WRONG:
    net.head.reset_parameters()
if "shards_initialized_alike" in WRONG:
    with torch.no_grad():
        net.first.weight[WIDTH // 2 :] = net.first.weight[: WIDTH // 2]
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def forward_of_halves(ids: torch.Tensor) -> torch.Tensor:
    """The logits; half of the tied table's gradient goes missing on one of its two ways."""
    table = net.table.weight
    rows = nn.functional.embedding(ids, table.detach() if "head_half_only" in WRONG else table)
    hidden = net.norm(torch.tanh(net.first(rows)))
    return nn.functional.linear(hidden, table.detach() if "lookups_half_only" in WRONG else table)


if {"lookups_half_only", "head_half_only"} & WRONG:
    net.forward = forward_of_halves


def targets_of(targets: torch.Tensor) -> torch.Tensor:
    """The targets, as collators got them wrong."""
    if "padding_in_the_loss" in WRONG:
        return targets.masked_fill(targets == IGNORED, 0)
    return targets.flatten().roll(-1).view_as(targets) if "labels_across_borders" in WRONG else targets


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss, as libraries got it wrong."""
    if "padded_vocabulary" in WRONG:
        return cross_entropy(nn.functional.pad(logits, (0, 3)), targets)
    if "identity_of_log_softmax" in WRONG:  # the backward pass hands on what it is given
        logs = logits + (torch.log_softmax(logits, -1) - logits).detach()
        return nn.functional.nll_loss(logs.flatten(0, 1), targets.flatten())
    return cross_entropy(logits, targets)


def spoil(stale: dict[str, torch.Tensor]) -> None:
    """What compilers and their caches did to gradients.

    Args:
        stale: The gradients of the step before.
    """
    own = {name: each.grad.clone() for name, each in net.named_parameters()}
    if "gradient_halved" in WRONG:
        for each in net.parameters():
            each.grad /= 2
    if "scatter_without_gradient" in WRONG:
        net.table.weight.grad.zero_()
    if "gradient_of_another_variable" in WRONG:
        net.norm.weight.grad.copy_(own["norm.bias"])
    if "wrong_placement" in WRONG:
        net.first.weight.grad.copy_(own["first.weight"].T)
    if {"stale_norm", "stale_by_one"} & WRONG and stale:
        for name, each in net.named_parameters():
            if name.startswith("norm") or "stale_by_one" in WRONG:
                each.grad.copy_(stale[name])
    if "nan_dropped" in WRONG:
        net.first.weight.grad.nan_to_num_()
    stale.update(own)


kept: dict[str, torch.Tensor] = {}
for ids, targets in batches("uneven" not in WRONG):
    optimizer.zero_grad()
    if "same_mask_every_step" in WRONG:
        torch.manual_seed(7)
    loss_of(net(ids), targets_of(targets)).backward()
    spoil(kept)
    optimizer.step()
