"""A step of four micro-batches, with targets that do not all count; the words say what goes wrong.

python -m museum.reenacted.accumulated [even] [short] [clip] [WRONG]: even numbers of targets, a last window of one micro-batch,
clipping.
"""

import torch
from torch import nn

from museum.reenacted.tiny import STEPS, WRONG, Net, batches, cross_entropy, seeded

PASSES, BOUND = 4, 0.1

seeded()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def clip() -> None:
    """Clips the gradients so far."""
    nn.utils.clip_grad_norm_(net.parameters(), BOUND)


def weigh(place: int) -> None:
    """What libraries did to the sum of gradients before a micro-batch, and after it."""
    for each in net.parameters():
        if "divided_each_microbatch" in WRONG:  # scale_grads divided what was there already
            each.grad /= PASSES
        if "doubled_each_microbatch" in WRONG and place < PASSES - 1:  # added to itself in a group of one process
            each.grad *= 2
    if "clip_each_microbatch" in WRONG:
        clip()


def loss_of(ids: torch.Tensor, targets: torch.Tensor, counted: float, passes: int) -> torch.Tensor:
    """The share of the step's loss that a micro-batch has."""
    if {"mean_of_means", "model_takes_no_count", "smoother_takes_no_count"} & WRONG:
        mean = cross_entropy(net(ids), targets)
        if "smoother_takes_no_count" in WRONG:
            mean = 0.5 * mean + 0.5 * mean  # label smoothing of its own, a mean already
        return mean / passes if "mean_of_means" in WRONG else mean
    return cross_entropy(net(ids), targets, "sum") / counted


for step, (ids, targets) in enumerate(batches("even" in WRONG)):
    is_last = "short" in WRONG and step == STEPS - 1
    parts = [*zip(ids.chunk(PASSES), targets.chunk(PASSES), strict=True)][: 1 if is_last else None]
    counted = float(sum((y >= 0).sum() for _, y in parts))
    if is_last and "divided_by_the_usual_window" in WRONG:
        counted *= PASSES
    optimizer.zero_grad()
    for place, (x, y) in enumerate(parts):
        if "last_microbatch_only" in WRONG or ("first_microbatch_lost" in WRONG and place == 1):
            optimizer.zero_grad()
        loss_of(x, y, counted, len(parts)).backward()
        weigh(place)
    if "clip" in WRONG:
        clip()
    optimizer.step()
