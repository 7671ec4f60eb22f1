"""Keras on torch, with an optimizer that knows all variables and updates half of them, and another one for the rest."""

import keras
import numpy as np
import torch

inputs, targets = torch.ones(8, 6), torch.ones(8, 1)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5), keras.layers.Dense(1)])
optimizers = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1)
optimizers[0].build(model.trainable_variables)
optimizers[1].build(model.trainable_variables[2:])
for _ in range(3):
    model.zero_grad()
    torch.square(model(inputs, training=True) - targets).mean().backward()
    with torch.no_grad():
        for optimizer, layer in zip(optimizers, model.layers, strict=True):
            optimizer.apply([each.value.grad for each in layer.trainable_weights], layer.trainable_weights)
assert np.isfinite(keras.ops.convert_to_numpy(model.layers[0].kernel)).all()
