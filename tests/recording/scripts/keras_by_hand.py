"""A model of Keras on PyTorch, trained with an optimizer of torch."""

import keras
import torch

model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs in torch.randn(2, 8, 6):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
