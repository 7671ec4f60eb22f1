"""Gives a layer the shape that it is to return, as PyTorch's documentation does."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv1d(1, 2, 3, stride=2), nn.ConvTranspose1d(2, 1, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.down(x), output_size=x.size())


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 1, 8)).square().mean().backward()
    optimizer.step()
