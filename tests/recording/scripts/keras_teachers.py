"""Networks that follow one of Keras on PyTorch, or go on from it: keras_teachers.py averages | held | tuned | remade [WORD...].

A word is a mistake, or none.
"""

import sys
import tempfile

import keras
import numpy as np
import torch

kind, *words = sys.argv[1:]
keras.utils.set_random_seed(0)
generator = np.random.default_rng(0)
inputs, targets = (generator.normal(size=(32, size)).astype(np.float32) for size in (6, 1))
share = 0.2 if "faster" in words else 0.1


def network(name):
    dense = keras.layers.Dense
    layers = [dense(8, activation="tanh"), keras.layers.BatchNormalization(), dense(1)]
    return keras.Sequential([keras.Input((6,)), *layers], name=name)


def follow(copy, model):
    for slow, fast in zip(copy.variables, model.variables, strict=True):
        slow.assign(share * fast + (1 - share) * slow)


class Follow(keras.callbacks.Callback):
    """Of the weights, the optimizer keeps an average, and this one another."""

    def on_train_batch_end(self, batch, logs=None):
        follow(copy, model)
        for each in model.optimizer._model_variables_moving_average if "restarted" in words else ():
            each.assign(0 * each)


class Held(keras.Model):
    """A model holds the network that its step trains, and one that follows it."""

    def __init__(self):
        super().__init__()
        self.trained, self.average = model, copy

    def call(self, given):
        return self.trained(given)

    def train_step(self, data):
        self.zero_grad()
        loss = ((self.trained(data[0], training=True) - data[1]) ** 2).mean()
        loss.backward()
        variables = self.trained.trainable_variables
        with torch.no_grad():
            self.optimizer.apply([each.value.grad for each in variables], variables)
            follow(self.average, self.trained)
        return {"loss": loss}


model, copy = network("model"), network("copy")
if "other" not in words:
    copy.set_weights(model.get_weights())
if kind == "held":
    whole = Held()
    whole.compile(keras.optimizers.SGD(0.1))
elif kind == "remade":
    whole = model
    whole.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    whole.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)
    whole.save(path := f"{tempfile.mkdtemp()}/model.keras")
    whole = whole if "once" in words else keras.models.load_model(path)
    if "lost" in words:
        whole.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
elif kind == "tuned":
    given, base = keras.Input((6,)), keras.Sequential([keras.layers.Dense(8)]) if "plain" in words else model
    base.trainable = "frozen" not in words
    head = keras.layers.Dense(1, kernel_initializer="zeros" if "zeros" in words else "glorot_uniform")
    whole = keras.Model(given, head(base(given)))
    whole.compile(keras.optimizers.SGD(0.1), "mse")
else:
    whole = model
    whole.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse")
whole.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0, callbacks=[Follow()] if kind == "averages" else [])
