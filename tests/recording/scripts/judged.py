"""A script of one process or of several, which is wrong or runs elsewhere if asked."""

import contextlib
import os
import sys
import types

world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if world == 1:
    sys.modules.setdefault("torch._meta_registrations", types.ModuleType("torch._meta_registrations"))  # see plain.py

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

if world > 1:
    dist.init_process_group("gloo")
elif "torch._dynamo" not in sys.modules:  # see plain.py
    torch._dynamo = types.SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    sys.modules["torch._dynamo"] = torch._dynamo
torch.manual_seed(1 if "--other-seed" in sys.argv else 0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(model) if world > 1 else model
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
inputs, targets = torch.randn(64, 6), torch.randint(4, (64,))
if "--narrow" in sys.argv:
    model, inputs = model.bfloat16(), inputs.bfloat16()
passes = 4 if "--accumulate" in sys.argv else 1
for step in range(5):
    part = slice(step % 4 * 16, step % 4 * 16 + 16)
    optimizer.zero_grad()
    for x, y in zip(inputs[part][rank::world].chunk(passes), targets[part][rank::world].chunk(passes), strict=True):
        with torch.autocast("cpu", torch.bfloat16) if "--bf16" in sys.argv else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(net(x), y)
        (loss if "--undivided" in sys.argv else loss / passes).backward()
    if "--off" in sys.argv:
        model[0].weight.grad *= 1.001
        model[2].bias.grad += 0.01 * model[2].bias.grad.norm() * torch.randn(16)
    optimizer.step()
