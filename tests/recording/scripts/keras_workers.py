"""Keras under MultiWorkerMirroredStrategy, which starts two processes; "alone", or with "local" means of the losses."""

import json
import os
import socket
import subprocess
import sys

if "TF_CONFIG" not in os.environ and "alone" not in sys.argv:
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    places = [f"127.0.0.1:{each.getsockname()[1]}" for each in doors]
    for each in doors:
        each.close()
    configs = [
        {"cluster": {"worker": places}, "task": {"type": "worker", "index": index}} for index in range(len(places))
    ]
    started = [
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"TF_CONFIG": json.dumps(each)})
        for each in configs
    ]
    sys.exit(max(each.wait(150) for each in started))

import keras
import numpy as np
import tensorflow as tf

is_alone, batch = "alone" in sys.argv, 8 if "local" in sys.argv else 16
strategy = tf.distribute.get_strategy() if is_alone else tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
generator = np.random.default_rng(0)
data = generator.normal(size=(64, 6)).astype(np.float32), generator.normal(size=(64, 1)).astype(np.float32)
with strategy.scope():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)


@tf.function
def step(both):
    def run(given):
        with tf.GradientTape() as tape:
            each = tf.reduce_mean((model(given[0], training=True) - given[1]) ** 2, 1)
            loss = tf.nn.compute_average_loss(each, global_batch_size=batch)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    strategy.run(run, (both,))


for both in strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(data).batch(16)):
    step(both)
