"""Draws while it trains: examples, targets, dropout. With `halves` a layer is computed in two parts, with `leaves` by hand."""

import sys
import types

sys.modules.setdefault("torch._meta_registrations", types.ModuleType("torch._meta_registrations"))  # see plain.py

import torch  # noqa: E402
from torch import nn  # noqa: E402

if "torch._dynamo" not in sys.modules:  # see plain.py
    torch._dynamo = types.SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    sys.modules["torch._dynamo"] = torch._dynamo


class Halved(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halves = zip(self.weight.chunk(2), self.bias.chunk(2), strict=True)
        return torch.cat([nn.functional.linear(x, *each) for each in halves], -1)


torch.manual_seed(0)
torch.set_num_threads(1)
linear = Halved if "halves" in sys.argv else nn.Linear
model = nn.Sequential(linear(6, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 1, bias=False))
nn.init.trunc_normal_(model[0].weight)
if "leaves" in sys.argv:
    first, scale = torch.randn(6, 1).mul_(0.1).requires_grad_(), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([first, scale], lr=0.1)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(4):
    x = torch.randn(16, 6)
    targets = torch.bernoulli(torch.rand(16, 1)) + torch.normal(torch.zeros(16, 1), torch.full((16, 1), 0.1))
    found = x @ (first * (1 + scale)) if "leaves" in sys.argv else model(x)
    loss = (found - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
