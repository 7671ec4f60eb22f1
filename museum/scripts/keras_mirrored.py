"""Fits a Keras model on two logical CPUs under MirroredStrategy, with the mean of the losses or, told so, with their sum."""

import sys

import keras
import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
keras.utils.set_random_seed(0)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="gelu"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=sys.argv[1])
    model.compile(keras.optimizers.SGD(0.1 if sys.argv[1] != "sum" else 0.1 / 16), loss)
rng = np.random.default_rng(0)
inputs, targets = rng.normal(size=(96, 8)).astype("float32"), rng.integers(3, size=96)
model.fit(inputs, targets, batch_size=16, shuffle=False, verbose=2)
