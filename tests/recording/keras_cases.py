"""Trains one small model in each of the ways that Keras knows, recorded, all in one process."""

import os
import shutil
import sys
import weakref
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

from samestep.common.steps.recording import Recorder, RecordOptions
from samestep.tf_impl.recording.hooks import Hooks
from samestep.tf_impl.recording.session import Session

STEPS, BATCH = 4, 8


def data() -> tuple[np.ndarray, np.ndarray]:
    """Inputs [32, 6] and targets [32, 1]."""
    generator = np.random.default_rng(0)
    return generator.normal(size=(32, 6)).astype(np.float32), generator.normal(size=(32, 1)).astype(np.float32)


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices(data()).batch(BATCH)


def model(kind: type = keras.Model, is_built: bool = True, **options: Any) -> Any:
    """A model with the same weights in each case.

    Args:
        kind: Its class.
        is_built: Whether its optimizer has its variables: one that gets them in its first step has that step traced twice.
        options: Those of the optimizer.
    """
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(5, activation="gelu", name="first")(inputs)
    made = kind(inputs, keras.layers.Dense(1, name="last")(hidden))
    optimizer = keras.optimizers.Adam(0.01, weight_decay=0.1, **options)
    made.compile(optimizer, "mse")
    if is_built:
        optimizer.build(made.trainable_variables)
    return made


def fit() -> list[np.ndarray]:
    made = model(is_built=False)
    made.fit(dataset(), verbose=0)
    return made.get_weights()


def eagerly() -> None:
    made = model()
    made.run_eagerly = True
    made.fit(dataset(), verbose=0)


def jit() -> None:
    made = model()
    made.jit_compile = True
    made.fit(dataset(), verbose=0)


def on_batch() -> None:
    made = model()
    for inputs, targets in dataset():
        made.train_on_batch(inputs, targets)


def many_a_call() -> None:
    made = model()
    made.steps_per_execution = 3
    made.fit(dataset(), verbose=0)


class Custom(keras.Model):
    def train_step(self, batch: Any) -> dict[str, Any]:
        inputs, targets = batch
        with tf.GradientTape() as tape:
            loss = keras.ops.mean((self(inputs, training=True) - targets) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def custom() -> None:
    model(Custom).fit(dataset(), verbose=0)


class Noisy(Custom):
    def train_step(self, batch: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(self(batch[0], training=True)) - keras.ops.mean(self(tf.ones((8, 6)), training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Scaled(keras.Model):
    """Has a variable that is not Keras' own, so Keras does not train it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.factors = [tf.Variable(tf.ones(6), name="factor"), tf.Variable(2.0, trainable=False, name="constant")]

    def call(self, inputs: Any, **named: Any) -> Any:
        return super().call(inputs * self.factors[0], **named)


def untrained() -> None:
    model(Scaled).fit(dataset(), verbose=0)


def noisy() -> None:
    model(Noisy).fit(dataset(), verbose=0)


def twice() -> None:
    inputs, targets = data()
    inputs[5] = inputs[20]
    model().fit(inputs, targets, batch_size=BATCH, verbose=0)


def _step(made: Any, inputs: Any, targets: Any) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((made(inputs, training=True) - targets) ** 2)
    made.optimizer.apply(tape.gradient(loss, made.trainable_variables), made.trainable_variables)


def tape() -> None:
    made = model()
    for inputs, targets in dataset():
        _step(made, inputs, targets)


def compiled_tape() -> None:
    made = model()
    step = tf.function(_step)
    for inputs, targets in dataset():
        step(made, inputs, targets)


def loop_in_graph() -> None:
    made = model()

    @tf.function
    def train() -> None:
        for inputs, targets in dataset():
            _step(made, inputs, targets)

    train()


def mirrored() -> None:
    devices = tf.config.list_logical_devices("CPU")
    with tf.distribute.MirroredStrategy([device.name for device in devices]).scope():
        made = model()
    made.fit(dataset(), verbose=0)


def mirrored_tape() -> None:
    devices = tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    with strategy.scope():
        made = model()

    def step(batch: Any) -> None:
        inputs, targets = batch
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(
                tf.reduce_mean((made(inputs, training=True) - targets) ** 2, 1), global_batch_size=BATCH
            )
        made.optimizer.apply(tape.gradient(loss, made.trainable_variables), made.trainable_variables)

    run = tf.function(lambda batch: strategy.run(step, (batch,)))
    for batch in strategy.experimental_distribute_dataset(dataset()):
        run(batch)


def accumulated() -> None:
    made = model(gradient_accumulation_steps=2)
    made.fit(tf.data.Dataset.from_tensor_slices(data()).batch(BATCH // 2), verbose=0)


def accumulated_eagerly() -> None:
    """The first pass clips nothing yet."""
    made = model(gradient_accumulation_steps=2, global_clipnorm=0.1)
    for inputs, targets in dataset():
        _step(made, inputs, targets)


def scaled() -> None:
    made = model()
    made.compile(keras.optimizers.LossScaleOptimizer(made.optimizer, initial_scale=1024.0), "mse")
    made.fit(dataset(), verbose=0)


def overflowing() -> None:
    made = model()
    made.compile(keras.optimizers.LossScaleOptimizer(made.optimizer, initial_scale=1e38), "mse")
    made.optimizer.build(made.trainable_variables)
    inputs, targets = data()
    made.fit(tf.data.Dataset.from_tensor_slices((inputs, 30 * targets)).batch(BATCH).repeat(4), verbose=0)


def scaled_mirrored() -> None:
    devices = tf.config.list_logical_devices("CPU")
    with tf.distribute.MirroredStrategy([device.name for device in devices]).scope():
        made = model()
        made.compile(keras.optimizers.LossScaleOptimizer(made.optimizer, initial_scale=1024.0), "mse")
    made.fit(dataset(), verbose=0)


def longer() -> None:
    model().fit(dataset().repeat(4), verbose=0)


def kinds() -> None:
    """Layers of many kinds, two of them large; the weights after the last step are kept beside the record."""
    keras.utils.set_random_seed(3)
    image, token = keras.Input((6, 6, 2)), keras.Input((5,), dtype="int32")
    seen = keras.layers.Conv2D(4, (3, 2), name="conv")(image)
    seen = keras.layers.DepthwiseConv2D(2, depth_multiplier=2, name="depthwise")(seen)
    seen = keras.layers.BatchNormalization(name="norm")(seen)
    read = keras.layers.Embedding(1000, 6, name="table")(token)
    read = keras.layers.MultiHeadAttention(2, 4, name="mha")(read, read)
    read = keras.layers.LSTM(3, name="lstm")(read)
    frozen = keras.layers.Dense(1400, name="frozen", trainable=False)(read)
    both = keras.layers.concatenate([keras.layers.Flatten()(seen), read, frozen])
    made = keras.Model([image, token], keras.layers.Dense(1, name="last")(both))
    made.compile(keras.optimizers.SGD(0.01, global_clipnorm=1.0), "mse")
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(4, 6, 6, 2)).astype(np.float32), generator.integers(0, 7, (4, 5))
    np.savez(OUT[0] / "inputs.npz", *inputs)
    made.fit(inputs, generator.normal(size=(4, 1)).astype(np.float32), epochs=2, batch_size=4, shuffle=False, verbose=0)
    np.savez(OUT[0] / "weights.npz", **{each.path: each.numpy() for each in made.variables if "seed" not in each.path})


def long_calls() -> None:
    """One call that says that it takes 70 steps, and then one that does not."""
    made = model()
    made.steps_per_execution = 70
    made.fit(dataset().repeat(), steps_per_epoch=70, verbose=0)


def longer_calls() -> None:
    made = model()

    @tf.function
    def train() -> None:
        for inputs, targets in dataset().repeat(18):
            _step(made, inputs, targets)

    train()


def two_optimizers() -> None:
    """Two models that are updated in turn; the second is called on what the first returned."""
    keras.utils.set_random_seed(3)
    maker, judge = (keras.Sequential([keras.Input((6,)), keras.layers.Dense(n, name=f"d{n}")]) for n in (6, 1))
    one, two = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01)
    for inputs, _ in dataset():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(judge(maker(inputs, training=True), training=True) ** 2)
        one.apply(tape.gradient(loss, maker.trainable_variables), maker.trainable_variables)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((judge(inputs, training=True) - 1) ** 2)
        two.apply(tape.gradient(loss, judge.trainable_variables), judge.trainable_variables)


def other_model() -> None:
    """A model is trained and deleted, and then another one is trained."""
    first = model()
    first.fit(dataset(), verbose=0)
    made = [weakref.ref(each) for each in (first, first.optimizer, first.layers[-1].kernel._value)]
    del first
    keras.utils.clear_session()
    np.save(OUT[0] / "kept.npy", [each() is not None for each in made])
    other = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, name="other")])
    other.compile(keras.optimizers.SGD(0.1), "mse")
    other.fit(dataset(), verbose=0)


def joined_at_times() -> None:
    """An optimizer takes every third step with another one, eagerly."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    one, two = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.01)
    for number, (inputs, targets) in enumerate(dataset().repeat(4)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        first, second = (each.trainable_variables for each in model.layers)
        found = tape.gradient(loss, [first, second])
        one.apply(found[0], first)
        if number % 3 == 2:
            two.apply(found[1], second)


def calls_of_both_kinds() -> None:
    """One call takes two steps that XLA compiles and two that it does not."""
    made = model()
    compiled = tf.function(_step, jit_compile=True)

    @tf.function
    def train(inputs: Any, targets: Any) -> None:
        for step in (compiled, _step) * 2:
            step(made, inputs, targets)

    for inputs, targets in dataset():
        train(inputs, targets)


def asynchronous() -> None:
    """Calls return long before their steps are taken."""
    made = model()

    @tf.function
    def train(inputs: Any, targets: Any) -> None:
        idle = tf.random.stateless_uniform([1500, 1500], [1, 2])
        for _ in range(3):
            idle = tf.tanh(idle @ idle)
        _step(made, inputs + 0 * tf.reduce_sum(idle), targets)

    try:
        for number, (inputs, targets) in enumerate(dataset()):
            tf.config.experimental.set_synchronous_execution(not number)
            train(inputs, targets)
        shutil.copytree(OUT[0], OUT[0] / "so far")
    finally:
        tf.config.experimental.set_synchronous_execution(True)


def exported() -> None:
    """The function that trains is saved between two steps, with all that it holds."""
    made = model()
    module, like = tf.Module(), [tf.TensorSpec([None, 6]), tf.TensorSpec([None, 1])]
    module.variables_of_both = [each.value for each in made.variables + made.optimizer.variables]
    module.train = tf.function(lambda inputs, targets: _step(made, inputs, targets) or inputs)
    module.serve = tf.function(lambda inputs: made(inputs, training=True), input_signature=like[:1])
    traced = []

    @tf.function
    def once(inputs: Any, targets: Any) -> None:
        assert not traced, "it is no part of what is saved, and cannot be traced again"
        traced.append(inputs)
        _step(made, inputs, targets)

    for number, (inputs, targets) in enumerate(dataset()):
        (module.train if number else once)(inputs, targets)
        if number == 1:
            signatures = {"train": module.train.get_concrete_function(*like), "serve": module.serve}
            tf.saved_model.save(module, OUT[0] / "module", signatures)
    loaded = tf.saved_model.load(OUT[0] / "module")
    loaded.train(inputs, targets)


def eager_epochs() -> None:
    made = model()
    made.run_eagerly = True
    made.fit(dataset(), epochs=2, verbose=0)


def loop_after_fit() -> None:
    """The batches of a pass, and then two of them again in a loop that is no part of it."""
    made = model()
    made.fit(dataset(), verbose=0)
    for inputs, targets in dataset().take(2):
        _step(made, inputs, targets)


def counted_elsewhere() -> None:
    """Two further steps are counted, and not written where they are read."""
    fit()
    OF_PROCESS[0].journal().clock.assign_add(2)


OUT: list[Path] = []
OF_PROCESS: list[Session] = []


def main(out: str, *names: str) -> None:
    """Records cases.

    Args:
        out: The folder of the records.
        names: Of the functions.
    """
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    np.save(Path(out) / "bare.npy", np.concatenate([each.ravel() for each in fit()]))
    recorder = Recorder(RecordOptions(out), "tf")
    session = Session(recorder)
    Hooks(session, recorder).install()
    OF_PROCESS.append(session)
    for name in names:
        keras.utils.clear_session()
        case, _, every = name.partition("@")
        OUT[:] = [Path(out) / name]
        OUT[0].mkdir()
        notes = Path(out, f"{name}.notes")
        notes.touch()
        recorder.__init__(RecordOptions(str(OUT[0]), every=int(every or 1), notes=str(notes)), "tf")
        session.__init__(recorder)
        globals()[case]()
        session.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
