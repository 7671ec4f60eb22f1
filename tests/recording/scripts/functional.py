"""The same four steps of a "module", and of tensors that none holds: a "function", by "example", "expanded", by a "call"."""

import sys

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

torch.manual_seed(0)
torch.set_num_threads(1)
kind = sys.argv[1]
inputs, targets = torch.randn(4, 8, 6), torch.randint(3, (4, 8))
if "wrong" in sys.argv:
    targets[2, 5] = (targets[2, 5] + 1) % 3
model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
parameters = {name: each.detach().clone() for name, each in model.named_parameters()}


def loss(weights, x, y):
    return nn.functional.cross_entropy(functional_call(model, weights, (x,)), y)


def loss_of_tensors(weights, x, y):
    hidden = torch.tanh(x @ weights["0.weight"].T + weights["0.bias"])
    return nn.functional.cross_entropy(hidden @ weights["2.weight"].T + weights["2.bias"], y)


if kind == "expanded":
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
if kind == "stateless":
    parameters = {name: nn.Parameter(each) for name, each in parameters.items()}
    model, optimizer = model.to("meta"), torch.optim.SGD(parameters.values(), 0.1)
for x, y in zip(inputs, targets, strict=True):
    if kind == "module":
        nn.functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for each in model.parameters():
                each -= 0.1 * each.grad
                each.grad = None
        continue
    if kind == "expanded":  # by wrappers of the weights that refuse to answer
        nn.functional.cross_entropy(call_for_per_sample_grads(model, loss_reduction="mean")(x), y).backward()
        for each in model.parameters():
            each.grad, each.grad_sample = each.grad_sample.mean(0), None
        optimizer.step()
        continue
    if kind == "stateless":
        optimizer.zero_grad()
        loss(parameters, x, y).backward()
        optimizer.step()
        continue
    if kind == "function":
        gradients, _ = grad_and_value(loss)(parameters, x, y)
    elif kind == "tensors":
        gradients = grad(loss_of_tensors)(parameters, x, y)
    elif kind == "example":
        each = vmap(grad(lambda weights, row, label: loss(weights, row[None], label[None])), (None, 0, 0))
        gradients = {name: own.mean(0) for name, own in each(parameters, x, y).items()}
    else:
        parameters = {name: each.requires_grad_() for name, each in parameters.items()}
        found = torch.autograd.grad(loss(parameters, x, y), [*parameters.values()])
        gradients = dict(zip(parameters, found, strict=True))
    parameters = {name: each.detach() - 0.1 * gradients[name] for name, each in parameters.items()}
