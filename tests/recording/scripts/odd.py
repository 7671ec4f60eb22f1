"""What the first argument names: "raw" tensors without a module, "compiled", "parallel", "frozen", "sparse", or "turned" data.

"wrapped" is parallel, and only the wrapper is in evaluation mode. "within" enters autocast within the model and returns
float32, as accelerate has it; "evaluated" only where nothing is trained; "narrow" has layers of bfloat16 inside.
"inductor" is compiled with kernels.
"evaluation" never calls train(), and "teacher" has another model in evaluation mode. "checked" is evaluated before it has an
optimizer, and "attacked" before each step, with a backward pass. "raising" has a first step that an
optimizer refuses to take, and another optimizer of the class that its own is derived from.
"""

import contextlib
import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
kind = sys.argv[1]
inputs, targets = torch.randn(4, 8, 6), torch.randn(4, 8, 3)
if kind == "turned":
    inputs = inputs.flip(0)
if kind == "raw":
    weight = torch.randn(6, 3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        (x @ weight - y).square().mean().backward()
        optimizer.step()
    sys.exit()
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
if kind == "sparse":
    model = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Flatten(), nn.Linear(24, 3))
    inputs = torch.randint(20, (4, 8, 6))
if kind == "within":
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    model.register_forward_hook(lambda _, given, result: result.float())
if kind == "evaluated":
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(inputs[0])
if kind == "narrow":
    inputs, model = inputs.bfloat16(), model.bfloat16()
if kind == "frozen":
    model[0].requires_grad_(False)
called = {"compiled": lambda: torch.compile(model, backend="eager"), "parallel": lambda: nn.DataParallel(model)}
called["wrapped"] = called["parallel"]
called["inductor"] = lambda: torch.compile(model)
net = called.get(kind, lambda: model)()
net.training = kind != "wrapped"
if kind == "checked":
    net.eval()(inputs[0])
    net.train()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
if kind == "evaluation":
    net.eval()
if kind == "raising":
    torch.optim.SGD([torch.zeros(1)], lr=0.1)

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    optimizer = Own(net.parameters(), lr=0.1)

    def refuse(*_: object) -> None:
        raise ValueError

    handle = optimizer.register_step_pre_hook(refuse)
    with contextlib.suppress(ValueError):
        optimizer.step()
    handle.remove()
teacher = nn.Linear(6, 3).eval()
for x, y in zip(inputs, targets, strict=True):
    if kind == "attacked":
        nn.functional.mse_loss(net.eval()(x + 0.1), y).backward()
        net.train()
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), teacher(x).detach() if kind == "teacher" else y).backward()
    optimizer.step()
