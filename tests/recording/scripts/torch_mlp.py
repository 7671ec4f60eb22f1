"""The perceptron of keras_mlp.py in PyTorch, with the same weights."""

import numpy as np
import torch
from torch import nn

generator = np.random.default_rng(0)
x, y = (torch.from_numpy(generator.normal(size=(32, size)).astype(np.float32)) for size in (6, 1))
model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
with torch.no_grad():
    for k, each in enumerate(model.parameters()):
        values = np.random.default_rng(k).normal(size=tuple(each.shape)[::-1]).astype(np.float32)
        each.copy_(torch.from_numpy(values.T.copy()))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for k in range(0, 32, 8):
    loss = nn.functional.mse_loss(model(x[k : k + 8]), y[k : k + 8])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.5)
    optimizer.step()
