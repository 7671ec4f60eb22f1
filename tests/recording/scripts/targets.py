"""Targets of losses of several kinds; "wrong" has one wrong, and "rounded" another last bit of all."""

import sys

import torch
from torch import nn
from torch.nn import functional

KIND = next((word for word in sys.argv[1:] if word not in ("wrong", "rounded", "shorter", "padded")), "module")
distance, alignment = nn.SmoothL1Loss(), nn.CTCLoss()


def aligned(outputs, y):
    """Of two labels each; a loss of another length of its inputs has the same targets."""
    length = 6 if "shorter" in sys.argv else 8
    scores = functional.log_softmax(outputs.T[:, :, None] * torch.linspace(-1, 1, 10), 2).repeat(4, 1, 1)
    labels = functional.pad((y - 1).long(), (0, 1), value=4 if "padded" in sys.argv else 9)
    return alignment(scores, labels, *(torch.full((len(y),), size) for size in (length, 2)))


LOSSES = {
    "module": distance,
    "labels": aligned,
    "hand": lambda outputs, y: ((outputs - y) ** 2).mean(),
    "absolute": functional.l1_loss,
    "shares": lambda outputs, y: functional.cross_entropy(outputs, y / y.sum(1, keepdim=True)),
    "divergence": lambda outputs, y: functional.kl_div(functional.log_softmax(outputs, 1), y, reduction="batchmean"),
}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.randn(18, 4), (torch.rand(18, 2) + 2).bfloat16().float()
    if "rounded" in sys.argv:
        targets = torch.nextafter(targets, torch.tensor(9.0))
    if "wrong" in sys.argv:
        targets[15] = torch.tensor([9.0, 1.0])
    batches = zip(inputs.split(6), targets.split(6), strict=True)
    if KIND in ("hand", "absolute"):  # of these, only a DataLoader shows what belongs together
        batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=6)
    for x, y in batches:
        optimizer.zero_grad()
        LOSSES[KIND](model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
