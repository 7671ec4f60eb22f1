"""Why a right strategy cannot take the step of a user's Keras model: found by experiment, and claimed only if one shows it."""

import dataclasses
import re
from pathlib import Path

import pytest

from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.workload.models.description import read_description
from samestep.common.workload.models.findings import Habits

pytestmark = pytest.mark.tf
ZOO = Path(__file__).parents[1] / "own" / "keras_zoo.py"

NET = """
import samestep

def net():
    import keras, tensorflow as tf
    from keras import layers

    class Mean(layers.Layer):
        def call(self, x):
            return x - keras.ops.mean(x, 0)

    class Noise(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seed = keras.random.SeedGenerator(0)

        def call(self, x):
            return x + 0.1 * keras.random.normal(keras.ops.shape(x), seed=self.seed)

    class Running(layers.Layer):
        def build(self, shape):
            self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")

        def call(self, x, training=False):
            if training:
                self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, 0))
            return x - self.mean

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.flatten, self.out = layers.Flatten(), layers.Dense(10)
            self.seed = keras.random.SeedGenerator(0)
            self.inner = {inner}

        def call(self, x, training=False):
            h = self.inner(self.flatten(x) / 8, training=training)
            {does}
            return self.out(h)

    return Net()

def bare():
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.ones((64, 10), "float64") / 64, name="kernel")
            self.mean = tf.Variable(tf.zeros(64, "float64"), trainable=False, name="mean")

        def __call__(self, x):
            h = tf.reshape(x, (-1, 64))
            {does}
            return h @ tf.cast(self.kernel, x.dtype)

    return Net()

model = samestep.Model(tf=net)
module = samestep.Model(tf=bare)
"""


def asked(
    folder: Path, does: str, inner: str = "layers.Identity()", name: str = "model", **fields: object
) -> RunConfig:
    (folder / "net.py").write_text(NET.format(does=does or "pass", inner=inner))
    model, data = f"{folder / 'net.py'}:{name}", f"{ZOO}:images"
    named = {"devices": 2, "batch_size": 48, "steps": 6, "dtype": "float64", "model": model, "data": data, **fields}
    return RunConfig("tf", "mirrored", **named)


OUTSIDE = ("its forward pass",)
DROPPED = "h = keras.random.dropout(h, 0.2, seed=self.seed) if training else h"


@pytest.mark.parametrize(
    ("does", "inner", "habits"),
    [
        ("", "layers.Identity()", Habits()),
        pytest.param("", "layers.LayerNormalization()", Habits(), marks=pytest.mark.slow),
        ("h = h + tf.random.normal(tf.shape(h), dtype=h.dtype)", "layers.Identity()", Habits(randoms=OUTSIDE)),
        pytest.param(
            "h = h + tf.random.stateless_normal(tf.shape(h), (0, 1), dtype=h.dtype)",
            "layers.Identity()",
            Habits(randoms=OUTSIDE),
            marks=pytest.mark.slow,
        ),
        (
            "h = h + keras.random.uniform(keras.ops.shape(h), seed=self.seed)",
            "layers.Identity()",
            Habits(randoms=OUTSIDE),
        ),
        (DROPPED, "layers.Identity()", Habits(randoms=OUTSIDE)),
        pytest.param("h = tf.nn.dropout(h, 0.2)", "layers.Identity()", Habits(randoms=OUTSIDE), marks=pytest.mark.slow),
        pytest.param("", "layers.Dropout(0.2, name='drop')", Habits(randoms=("drop",)), marks=pytest.mark.slow),
        ("", "layers.GaussianNoise(0.2, name='noise')", Habits(randoms=("noise",))),
        ("", "keras.Sequential([Noise()], name='inner')", Habits(randoms=("inner/noise",))),
        ("", "Running(name='run')", Habits(running=("run/mean",))),
        ("", "layers.BatchNormalization()", Habits()),
        ("h = h - keras.ops.mean(h, 0)", "layers.Identity()", Habits(mixing=OUTSIDE)),
        ("", "Mean(name='mix')", Habits(mixing=("mix",))),
        (DROPPED, "Running(name='run')", Habits(randoms=OUTSIDE, running=("run/mean",))),
    ],
)
def test_what_a_forward_pass_depends_on(
    launcher: Launcher, tmp_path: Path, does: str, inner: str, habits: Habits
) -> None:
    """Random numbers of each source, and of a layer; `make test-slow` has further functions of the same sources."""
    config = launcher.describe(asked(tmp_path, does, inner))
    found = read_description(str(config.described)).habits
    assert found == habits, found


@pytest.mark.parametrize(
    ("does", "habits"),
    [
        ("h = h - tf.reduce_mean(h, 0)", Habits(mixing=OUTSIDE)),
        ("h = h + tf.random.normal(tf.shape(h), dtype=h.dtype)", Habits(randoms=OUTSIDE)),
        ("h = h - self.mean.assign_add(tf.reduce_mean(h, 0))", Habits(restless=("mean",), mixing=OUTSIDE)),
        ("", Habits()),
    ],
)
def test_what_a_module_depends_on(launcher: Launcher, tmp_path: Path, does: str, habits: Habits) -> None:
    config = launcher.describe(asked(tmp_path, does, name="module"))
    assert read_description(str(config.described)).habits == habits


def judged(launcher: Launcher, config: RunConfig, out: Path) -> RunResult:
    config = launcher.describe(config)
    return launcher.run(parse(config), dataclasses.replace(launch_of(config), out=str(out)))


NOISE = r"the random numbers of 1 layer \(its forward pass\)"
STILL, HELD = r"switched off \(--no-dropout\)", r"frozen \(--batch-norm frozen\)"
OFF = r"\. The losses are off by \S+;"


@pytest.mark.parametrize(
    ("does", "inner", "reason"),
    [
        (DROPPED, "layers.Identity()", rf"{NOISE}{OFF} with these {STILL}, by \S+"),
        ("", "Running(name='run')", rf"the moves of 1 running buffer \(run/mean\){OFF} with these {HELD}, by \S+"),
        (
            "h = h - keras.ops.mean(h, 0)",
            "layers.Identity()",
            rf"the mixing of a batch's examples in its forward pass{OFF} tf:single with --accumulation-steps 2 mixes the same "
            r"examples, and is \S+ from it",
        ),
        pytest.param(
            DROPPED,
            "Running(name='run')",
            rf"{NOISE} and the moves of 1 running buffer \(run/mean\){OFF} with these {STILL} and {HELD}, by \S+",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_cause_is_named_with_its_share(
    launcher: Launcher, tmp_path: Path, does: str, inner: str, reason: str
) -> None:
    result = judged(launcher, asked(tmp_path, does, inner), tmp_path / "run")
    assert result.parity.passed is False
    assert re.fullmatch(rf"your model is not the same function on shards: {reason}", result.parity.reason), (
        result.parity.reason
    )
