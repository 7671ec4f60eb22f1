"""Compares Keras `fit` under MirroredStrategy with ours, for the same model, batch, optimizer, devices and threads.

`python -m benchmarks.cost.keras_fit` prints steps per second, as medians over interleaved rounds, and the time of `fit` as a
multiple of ours. The first way is that of Keras's guide to distributed training, where the data set ends with each epoch. The
second repeats the data set, so no iterator is created again. The ratios have to be at least 3 and at least 1.
"""

import dataclasses
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

from samestep.common.batch import batches
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.worker.loop import train
from samestep.common.runtime.worker.traffic import Traffic
from samestep.common.runtime.worker.worker import pin
from samestep.common.strategy import Run
from samestep.common.workload.data.casting import in_dtype
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.optimizers.sgd import Sgd
from samestep.tf_impl.strategies.mirrored import build

EPOCHS = 10
ROUNDS = 7


def main() -> None:
    """Times the three ways in turn."""
    run = parse(RunConfig(framework="tf", strategy="mirrored", workload="digits-mlp", devices=2))
    pin(run)
    program = build(run)
    data = in_dtype(run.workload.data.load(), run.dtype)
    steps = EPOCHS * (len(data.train_inputs) // run.batch_size)
    with program.parts.strategy.scope():
        model = keras_model(run)
    examples = tf.data.Dataset.from_tensor_slices(
        (data.train_inputs.reshape(len(data.train_inputs), -1), data.train_targets)
    )
    dataset = examples.shuffle(len(data.train_inputs)).batch(run.batch_size, drop_remainder=True)
    repeated = dataset.repeat()
    stream = batches(data.train_inputs, data.train_targets, run.batch_size, run.seed)
    file = ProcessFile(Path(tempfile.mkdtemp()), "rank-0", 0)

    ways = {
        "samestep": lambda: train(
            program, dataclasses.replace(run, steps=steps), stream, 0, file, Traffic(file, {}, alone=True)
        ),
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


def keras_model(run: Run) -> keras.Model:
    """Returns the workload's MLP, written and compiled as is usual in Keras."""
    spec, optimizer = cast(MlpSpec, run.workload.model), cast(Sgd, run.optimizer)
    hidden = [keras.layers.Dense(spec.width, activation="gelu") for _ in range(spec.layers - 1)]
    model = keras.Sequential([keras.Input((int(np.prod(spec.features)),)), *hidden, keras.layers.Dense(spec.outputs)])
    model.compile(
        optimizer=keras.optimizers.SGD(optimizer.learning_rate, momentum=optimizer.momentum),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # TensorFlow sometimes crashes or hangs during teardown
