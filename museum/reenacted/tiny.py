"""What the re-enactments share: a small model of tokens, its batches, and the processes that train it together."""

import os
import sys
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

WORDS, CLASSES, LENGTH, WIDTH, IGNORED = 11, 5, 4, 16, -100
STEPS, BATCH = 3, 8
WRONG = frozenset(sys.argv[1:])
"""What a script is to get wrong, or otherwise than by default: the words behind its name."""


class Net(nn.Module):
    """A table, a layer with its norm, and a head."""

    def __init__(self, is_tied: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS if is_tied else CLASSES, bias=False)
        if is_tied:
            self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the logits [batch, length, classes]."""
        return self.head(self.norm(torch.tanh(self.first(self.table(ids)))))


def seeded(seed: int = 0) -> None:
    """Makes a script repeat itself."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)


def processes() -> tuple[int, int]:
    """Joins the other processes, if there are any; returns the rank and the number of processes."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        dist.init_process_group("gloo")
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def batches(is_even: bool = True, steps: int = STEPS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns ids and targets [batch, length] of each step.

    Args:
        is_even: Whether each example has as many targets that count as any other.
        steps: How many steps.
    """
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(WORDS, (steps, BATCH, LENGTH), generator=generator)
    targets = torch.randint(CLASSES, (steps, BATCH, LENGTH), generator=generator)
    if not is_even:
        counted = torch.arange(BATCH)[:, None] % LENGTH >= torch.arange(LENGTH)
        targets = targets.masked_fill(~counted, IGNORED)
    return list(zip(ids, targets, strict=True))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Returns the loss of the targets that count.

    Args:
        logits: [batch, length, classes].
        targets: [batch, length].
        reduction: "mean" or "sum".
    """
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction)


def average(parameters: Iterable[nn.Parameter]) -> None:
    """Replaces gradients by their mean over all processes."""
    for each in parameters:
        if each.grad is not None and dist.is_initialized():
            dist.all_reduce(each.grad)
            each.grad /= dist.get_world_size()
