"""python keras_mlp.py [BATCHES]: a perceptron of Keras, on batches of 8 or on gradients that are accumulated over BATCHES."""

import sys

import keras
import numpy as np

batches = int(sys.argv[1]) if len(sys.argv) > 1 else None
generator = np.random.default_rng(0)
x, y = generator.normal(size=(32, 6)).astype(np.float32), generator.normal(size=(32, 1)).astype(np.float32)
first, last = keras.layers.Dense(5, activation="tanh", name="first"), keras.layers.Dense(1, name="last")
model = keras.Sequential([keras.Input((6,)), first, last])
model.set_weights(
    [np.random.default_rng(k).normal(size=each.shape).astype(np.float32) for k, each in enumerate(model.get_weights())]
)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.5, gradient_accumulation_steps=batches), "mse")
model.optimizer.build(model.trainable_variables)  # or the step is traced twice
model.fit(x, y, batch_size=8 // (batches or 1), shuffle=False, verbose=0)
