"""A DataLoader with worker processes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (inputs,) in DataLoader(TensorDataset(torch.randn(8, 6)), batch_size=4, num_workers=1):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
