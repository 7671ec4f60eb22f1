"""Keras `fit` under MirroredStrategy beside ours: the same model, batch, optimizer, devices and threads.

`python -m benchmarks.keras_fit` prints steps per second, medians over interleaved rounds, and how many times `fit` takes
of our time. The first way is the one in Keras's guide to distributed training, a data set that ends with each epoch; the
second repeats the data set, so that no iterator is made anew. The bars: at least 3, and at least 1.
"""

import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import keras
import numpy as np
import tensorflow as tf

from common.batch import batches
from common.config import RunConfig
from common.runtime.check import check
from common.runtime.loop import in_dtype, train
from common.runtime.records import ProcessRecord
from common.runtime.traffic import Traffic
from common.runtime.worker import pin
from common.workload.models.mlp import MlpSpec
from common.workload.table import Workload
from tf_impl.strategies.mirrored import build

EPOCHS = 10
ROUNDS = 7


def main() -> None:
    """Times the three ways in turn."""
    asked = RunConfig(framework="tf", strategy="mirrored", workload="digits-mlp", devices=2, parity=False)
    config, workload = check(asked)
    pin(config)
    program = build(workload, config)
    data = in_dtype(workload.data.load(), config.dtype)
    size = config.batch_size or 0
    per_epoch = len(data.train_inputs) // size
    steps = EPOCHS * per_epoch
    with program.parts.strategy.scope():
        model = keras_model(workload, config)
    examples = tf.data.Dataset.from_tensor_slices(
        (data.train_inputs.reshape(len(data.train_inputs), -1), data.train_targets)
    )
    dataset = examples.shuffle(len(data.train_inputs)).batch(size, drop_remainder=True)
    repeated = dataset.repeat()
    stream = batches(data.train_inputs, data.train_targets, size, config.seed)
    record = ProcessRecord(Path(tempfile.mkdtemp()), "rank-0", 0)

    ways = {
        "samestep": lambda: train(program, stream, 0, steps, record, Traffic(record, {})),
        "fit": lambda: model.fit(dataset, epochs=EPOCHS, verbose=0),
        "fit, repeat()": lambda: model.fit(repeated, steps_per_epoch=steps, epochs=1, verbose=0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number, (name, way) in itertools.product(range(-1, ROUNDS), ways.items()):
        start = time.perf_counter()
        way()
        if number >= 0:  # the first round traces
            seconds[name].append(time.perf_counter() - start)
    print("| digits-mlp, MirroredStrategy, 2 CPU devices | steps/s | times our time |\n|---|---|---|")
    for name, taken in seconds.items():
        ratio = statistics.median(other / own for other, own in zip(taken, seconds["samestep"], strict=True))
        print(f"| {name} | {steps / statistics.median(taken):.0f} | {ratio:.2f} |")


def keras_model(workload: Workload, config: RunConfig) -> keras.Model:
    """The workload's MLP as one writes it in Keras, compiled."""
    spec, optimizer = cast(MlpSpec, workload.model), workload.optimizer(config)
    hidden = [keras.layers.Dense(spec.width, activation="gelu") for _ in range(spec.layers - 1)]
    model = keras.Sequential([keras.Input((int(np.prod(spec.features)),)), *hidden, keras.layers.Dense(spec.classes)])
    model.compile(
        optimizer=keras.optimizers.SGD(optimizer.learning_rate, momentum=optimizer.momentum),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # TensorFlow crashes or hangs now and then in its own teardown
