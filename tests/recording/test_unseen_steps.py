"""Steps of Keras that are not looked at run a copy of their graph without the looks: nothing else changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import RecordedStep
from tests.recording.records import ROOT

pytestmark = [pytest.mark.tf, pytest.mark.timeout(400)]
WORKER = """
import gc, json, sys, zlib
from samestep.common.runtime.imports import import_modules
import_modules(["keras"])
import keras, numpy as np, tensorflow as tf
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
"""


def run(out: Path, case: str) -> tuple[bool, list[bool], list[RecordedStep]]:
    """Returns whether a recorded script did what the bare one did, which of its graphs have a copy, and its steps."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, out, case], cwd=ROOT, capture_output=True, text=True, timeout=380
    )
    assert done.returncode == 0, done.stderr
    bare, recorded, copies = json.loads(done.stdout)
    with (out / "4" / "rank-0.steps").open("rb") as file:
        return bare == recorded, copies, list(read_rank(file, "a record")[1])


def test_a_copy_takes_the_same_steps_and_looks_at_none(tmp_path: Path) -> None:
    is_same, copies, steps = run(tmp_path, "fit")
    assert is_same
    assert True in copies
    assert [each.number for each in steps] == [-1, *range(40)]
    assert [each.number for each in steps if each.stats] == [-1, *range(10), *range(12, 40, 4)]
    assert all(each.losses and each.rows and each.scalars for each in steps[1:])
    assert len({each.losses for each in steps[1:]}) == 40
    assert [each.rows for each in steps[1:11]] * 4 == [each.rows for each in steps[1:]]


def test_a_graph_that_draws_random_numbers_has_no_copy_which_would_draw_others(tmp_path: Path) -> None:
    is_same, copies, _ = run(tmp_path, "noisy")
    assert is_same
    assert copies
    assert not any(copies)


def test_a_call_of_two_steps_has_no_copy_which_would_miss_the_look_at_the_second(tmp_path: Path) -> None:
    is_same, copies, steps = run(tmp_path, "of_two")
    assert is_same
    assert copies == [False]
    assert [each.number for each in steps if each.stats] == [-1, *range(10), *range(12, 76, 4)]
