"""A lazy head, and after two steps an adapter whose parameters the optimizer is given as a new group."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.ModuleDict({"body": nn.Linear(6, 4), "head": nn.LazyLinear(3)})


def forward(x):
    x = model["body"](x)
    return model["head"](model["adapter"](x) if "adapter" in model else x)


model.forward = forward
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step == 2:
        model["adapter"] = nn.Linear(4, 4)
        optimizer.add_param_group({"params": model["adapter"].parameters(), "lr": 0.01})
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
