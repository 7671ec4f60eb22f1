"""python keras_decay.py [wrong]: accumulated gradients; wrong decays the weights at every batch, as keras#19990 did."""

import sys
from typing import Any

import keras
import numpy as np


class DecaysAlways(keras.optimizers.SGD):
    def _backend_increment_gradient_accumulators(self, grads: Any, acc_grads: Any) -> None:
        self._apply_weight_decay(self._trainable_variables)
        super()._backend_increment_gradient_accumulators(grads, acc_grads)


kind = DecaysAlways if "wrong" in sys.argv else keras.optimizers.SGD
keras.utils.set_random_seed(0)
x, y = np.random.normal(size=(32, 6)).astype(np.float32), np.random.normal(size=(32, 1)).astype(np.float32)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)])
model.compile(kind(0.1, weight_decay=0.1, gradient_accumulation_steps=2), "mse")
model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
