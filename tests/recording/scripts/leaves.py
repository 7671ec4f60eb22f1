"""Neither modules nor optimizers: "made" makes new tensors in each step instead of writing them, "halves" accumulates."""

import sys

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
inputs, targets = torch.randn(5, 16, 6), torch.randn(5, 16, 3)
one = torch.randn(6, 8, requires_grad=True)
two = torch.randn(8, 3, requires_grad=True)
parts = 2 if "halves" in sys.argv else 1


def backward(weights, batch, target):
    for x, y in zip(batch.chunk(parts), target.chunk(parts), strict=True):
        (((x @ weights[0]).tanh() @ weights[1] - y).square().mean() / parts).backward()


for batch, target in zip(inputs, targets, strict=True):
    if "made" in sys.argv:
        backward([one, two], batch, target)
        one = (one - 0.1 * one.grad).detach().requires_grad_()
        two = (two - 0.1 * two.grad).detach().requires_grad_()
        continue
    backward([one, two], batch, target)
    with torch.no_grad():
        for each in (one, two):
            each -= 0.1 * each.grad
            each.grad = None
