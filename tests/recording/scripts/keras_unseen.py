"""Trains bare and recorded within one process, and says whether both are alike: keras_unseen.py OUT CASE."""

import gc
import json
import sys
import zlib

import keras
import numpy as np
import tensorflow as tf

import samestep
from samestep.tf_impl.recording.graphs import unseen


class Noise(keras.layers.Layer):
    def call(self, x, training=None):
        return x + 0.01 * tf.random.normal(tf.shape(x)) if training else x


drawn = np.random.default_rng(0).normal(size=(38, 301)).astype("float32")
kept = []  # its graphs are there until the end
data = tf.data.Dataset.from_tensor_slices((drawn[:, :300], drawn[:, 300:])).batch(4)


def made(middle):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((300,))
    seen = keras.layers.BatchNormalization()(middle(keras.layers.Dense(300, activation="gelu")(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(1)(seen))
    model.compile(keras.optimizers.AdamW(0.001), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # or each step is traced twice
    kept.append(model)
    return model


def fit():
    model = made(keras.layers.Dropout(0.2, seed=3))
    return model.fit(data, epochs=4, shuffle=False, verbose=0).history["loss"], model.get_weights()


def noisy():
    model = made(Noise())
    return model.fit(data, epochs=4, shuffle=False, verbose=0).history["loss"], model.get_weights()


def of_two():
    model, several = made(keras.layers.Dropout(0.2, seed=3)), []

    @tf.function
    def one(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def two(x, y):
        return one(x, y) + one(x, y)

    kept.append(two)
    for x, y in data.repeat(4):
        several.append(float(two(x, y) if len(x) == 4 else one(x, y)))
    return several, model.get_weights()


case = {"fit": fit, "noisy": noisy, "of_two": of_two}[sys.argv[2]]


def bits(found):
    return zlib.crc32(b"".join(np.asarray(each).tobytes() for each in keras.tree.flatten(found)))


bare = bits(case())
with samestep.record(sys.argv[1] + "/4", every=4):
    recorded = bits(case())
(one,) = (each for each in gc.get_objects() if isinstance(each, unseen.Unseen))
copies = [each is not None for each in one._made.values()]
print(json.dumps([bare, recorded, copies]))
