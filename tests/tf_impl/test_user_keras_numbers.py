"""Numbers of a user's Keras model that are not of --dtype: complex ones are refused, others are kept with a word."""

import re
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from tests.conftest import RunCell

pytestmark = pytest.mark.tf
ZOO = Path(__file__).parents[1] / "own" / "keras_zoo.py"

NET = """
import samestep

def net():
    import keras, tensorflow as tf
    from keras import layers

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.flatten, self.out = layers.Flatten(), layers.Dense(10{dtype})

        def build(self, shape):
            {made}

        def call(self, x):
            x = self.out(self.flatten(x))
            return {returned}

    return Net()

def bare():
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.ones((64, 10), "float64") / 64, name="kernel")
            self.w = {variable}

        def __call__(self, x):
            return tf.reshape(x, (-1, 64)) @ tf.cast(self.kernel, x.dtype) + tf.cast(self.w, x.dtype)

    return Net()

def loss(outputs, targets):
    import tensorflow as tf

    outputs = tf.reduce_sum(outputs, -1)
    return {loss}

model = samestep.Model(tf={build}, loss={{"tf": loss}})
"""
DEFAULTS = {"dtype": "", "made": "pass", "returned": "x", "variable": "0", "loss": "outputs", "build": "net"}


def asked(folder: Path, fields: dict[str, str], dtype: str = "float64") -> RunConfig:
    (folder / "net.py").write_text(NET.format(**DEFAULTS | fields))
    model, data = str(folder / "net.py"), f"{ZOO}:images"
    return RunConfig("tf", "mirrored", devices=2, batch_size=48, dtype=dtype, model=model, data=data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"made": "self.w = self.add_weight(shape=(3,), dtype='complex64', name='w')"}, "the parameter w is complex64"),
        (
            {"made": "self.w = self.add_weight(shape=(3,), dtype='complex64', name='w', trainable=False)"},
            "the buffer w is complex64, and rows train and keep real numbers; hold its real and its imaginary part",
        ),
        (
            {"build": "bare", "variable": "tf.Variable(tf.ones(3, 'complex128'), name='w')"},
            "the parameter w is complex128",
        ),
        (
            {"build": "bare", "variable": "tf.Variable(tf.ones(10, 'int64'), name='w')"},
            "the parameter w is int64, which has no gradient; make it with trainable=False",
        ),
        ({"returned": "tf.complex(x, x)"}, "the model returns complex128; return real numbers"),
        ({"loss": "tf.complex(outputs, outputs)"}, "the loss returns complex128; return real numbers"),
        ({"dtype": ", dtype='bfloat16'"}, "/kernel is bfloat16 whatever --dtype says; make it without dtype="),
        (
            {"dtype": ", dtype='mixed_bfloat16'"},
            "what dense computes is bfloat16 whatever --dtype says; make it without",
        ),
    ],
)
def test_what_cannot_be_trained_as_it_is_is_refused(
    launcher: Launcher, tmp_path: Path, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        launcher.describe(asked(tmp_path, fields))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "dtype", "said"),
    [
        (
            {
                "build": "bare",
                "variable": "tf.Variable(tf.ones(10), trainable=False, dtype='float32', name='w')",
            },
            "float64",
            "1 parameter or buffer is float32 (w), and not float64",
        ),
        ({"build": "bare", "variable": "tf.Variable(tf.ones(10), name='w')"}, "float64", ""),
        ({"dtype": ", dtype='float32'"}, "float64", ""),
        ({"dtype": ", dtype='float32'"}, "float32", ""),
        ({"build": "bare"}, "float64", ""),
        ({}, "float64", ""),
        ({}, "float32", ""),
    ],
)
def test_another_dtype_is_kept_with_a_word(
    launcher: Launcher, tmp_path: Path, fields: dict[str, str], dtype: str, said: str
) -> None:
    config = launcher.describe(asked(tmp_path, fields, dtype))
    note = check_launch(parse(config), launch_of(config))
    assert said in note if said else "and not" not in note


@pytest.mark.parametrize(
    ("variable", "dtype", "said"),
    [
        (
            "tf.Variable(tf.ones(10), dtype='float32', name='w')",
            "float64",
            "float32 (w), and not float64; make variables",
        ),
        (
            "tf.Variable(tf.ones(10), name='w')",
            "float32",
            "float64 (kernel), and not float32; make variables without dtype=",
        ),
    ],
)
def test_parameters_in_another_dtype_are_refused(
    launcher: Launcher, tmp_path: Path, variable: str, dtype: str, said: str
) -> None:
    config = launcher.describe(asked(tmp_path, {"build": "bare", "variable": variable}, dtype))
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_launch(parse(config), launch_of(config))


MASKED = {
    "made": "self.soft = layers.Softmax(dtype='float32')",
    "returned": "self.soft((1.0 - tf.cast(x < -tf.ones(10), 'float32')) * (x / tf.fill(tf.shape(x)[:1], 2.0)[:, None]))"
    " + self.out.bias.value * tf.ones(10) + (self.out.bias.value ** tf.ones(10))[None] @ tf.eye(10)",
}


def test_a_mask_in_float32_is_multiplied_by_float64(launcher: Launcher, tmp_path: Path) -> None:
    launcher.describe(asked(tmp_path, MASKED))


GUIDE = """
import samestep

def build():
    import tensorflow as tf

    class Dense(tf.Module):
        def __init__(self, outputs):
            super().__init__()
            self.outputs = outputs

        def __call__(self, x):
            if not hasattr(self, "w"):
                self.w = tf.Variable(tf.random.normal([x.shape[-1], self.outputs]), name="w")
                self.b = tf.Variable(lambda: tf.zeros([self.outputs]), name="b")
            return tf.matmul(x, self.w) + self.b

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = Dense(8), Dense(10)

        def __call__(self, x):
            return self.outer(tf.nn.tanh(self.inner(tf.reshape(x, (-1, 64)))))

    return Net()

def head():
    import keras
    from keras import layers

    return keras.Sequential([layers.Flatten(), layers.Dense(8, "tanh"), layers.Dense(10, dtype="float32")])

model = samestep.Model(tf={}, loss="cross_entropy")
"""


@pytest.mark.parametrize(
    ("build", "dtype", "technique"),
    [("build", "float64", ""), ("build", "float32", ""), ("head", "float32", "+precision=bf16")],
)
def test_variables_in_float32_follow_the_dtype(
    run_cell: RunCell, tmp_path: Path, build: str, dtype: str, technique: str
) -> None:
    (tmp_path / "net.py").write_text(GUIDE.replace("{}", build))
    own = {"model": str(tmp_path / "net.py"), "data": f"{ZOO}:images"}
    result = run_cell(f"tf:mirrored{technique}", "digits-mlp", devices=2, steps=4, dtype=dtype, **own)
    assert result.parity.passed, result.parity.reason
    assert result.processes[0].params_bytes == result.predicted.footprints[0].params_bytes


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_with_a_mask_in_float32_takes_the_same_step(run_cell: RunCell, tmp_path: Path, dtype: str) -> None:
    config = asked(tmp_path, MASKED, dtype)
    result = run_cell("tf:mirrored", "digits-mlp", devices=2, dtype=dtype, model=config.model, data=config.data)
    assert result.parity.passed, result.parity.reason
