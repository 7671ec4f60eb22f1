"""Fits a Keras model with four micro-batches a step, on the PyTorch backend."""

import argparse
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("optimizer", choices=["decay", "adam"])
given = parser.parse_args()

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="gelu"), keras.layers.Dense(3)])
make = {
    "decay": lambda: keras.optimizers.SGD(0.05, weight_decay=0.1, gradient_accumulation_steps=4),
    "adam": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=4),
}
model.compile(make[given.optimizer](), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
rng = np.random.default_rng(0)
inputs, targets = rng.normal(size=(192, 8)).astype("float32"), rng.integers(3, size=192)
model.fit(inputs, targets, batch_size=4, shuffle=False, verbose=2)
