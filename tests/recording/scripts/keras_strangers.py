"""Scripts of Keras as strangers write them: keras_strangers.py KIND [WORD...], where a word is a refactoring or a mistake."""

import contextlib
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

kind, *words = sys.argv[1:]
keras.utils.set_random_seed(0)
generator = np.random.default_rng(0)
inputs, noise, targets = (generator.normal(size=(32, size)).astype(np.float32) for size in (6, 4, 1))
BATCHES = [slice(start, start + 8) for start in range(0, 32, 8)]


def network(size, outputs, name):
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((size,)), dense(8, activation="tanh"), dense(outputs)], name=name)


def built(optimizer, variables):
    """An optimizer that has its variables, as some build it: one that gets them in its first step has that step traced twice."""
    optimizer.build(variables)
    return optimizer


def gan():
    """Both networks are updated after one pass of each."""
    maker, critic = network(4, 6, "maker"), network(6, 1, "critic")
    optimizers = built(keras.optimizers.Adam(0.001), maker.trainable_variables), keras.optimizers.SGD(0.1)

    def step(real, noise):
        with tf.GradientTape() as of_maker, tf.GradientTape() as of_critic:
            fake = maker(noise, training=True)
            right, wrong = critic(real, training=True), critic(fake, training=True)
            losses = -tf.reduce_mean(wrong), tf.reduce_mean(wrong) - tf.reduce_mean(right)
        networks, tapes = [maker, critic], [of_maker, of_critic]
        asks = [lambda k=k: tapes[k].gradient(losses[k], networks[k].trainable_variables) for k in range(2)]
        found = {} if "late" in words else {k: ask() for k, ask in enumerate(asks)}
        for k in (1, 0) if "swapped" in words else (0, 1):
            gradients = found[k] if k in found else asks[k]()
            optimizers[k].apply(gradients, networks[k].trainable_variables)

    run = step if "eager" in words else tf.function(step)
    for part in BATCHES:
        run(tf.constant(inputs[part]), tf.constant(noise[part]))


def towers():
    """Two networks of one loss, each with an optimizer of its own."""
    one, other = network(6, 4, "one"), network(4, 4, "other")
    networks, rates = (one, other), (0.01, 0.2 if "faster" in words else 0.1)
    optimizers = keras.optimizers.Adam(rates[0]), keras.optimizers.Adagrad(rates[1])
    for part in BATCHES:
        with tf.GradientTape(persistent=True) as tape:
            product = tf.reduce_sum(one(inputs[part], training=True) * other(noise[part], training=True), 1)
            loss = tf.reduce_mean((product - targets[part, 0]) ** 2)
        if "apart" in words:
            found = [tape.gradient(loss, each.trainable_variables) for each in networks]
        else:
            found = tape.gradient(loss, [each.trainable_variables for each in networks])
        turns = {"swapped": (1, 0), "forgotten": (1,), "lost": (0,), "twice": (0, 1, 1), "ahead": (0, 0, 1)}
        for k in turns.get(words[0] if words else "", (0, 1)):
            optimizers[k].apply(found[k], networks[k].trainable_variables)


def fit():
    options = {
        "each": {"clipnorm": 0.2},
        "value": {"clipvalue": 0.01},
        "loose": {"clipnorm": 1000.0},
        "all": {"global_clipnorm": 0.2},
    }
    options["average"] = {"ema_momentum": 0.9}  # of an average that is not kept
    options["decayed"] = options["unbiased"] = {"weight_decay": 0.1}
    model = network(6, 1, "model")
    optimizer = keras.optimizers.SGD(0.1, **options.get(words[-1] if words else "", {}))
    optimizer.exclude_from_weight_decay(var_names=["bias"] if "unbiased" in words else [])
    model.compile(optimizer, "mse")
    order = [*range(16), *range(16)] if "repeated" in words else slice(None)
    model.fit(inputs[order], targets[order], batch_size=8, shuffle=False, verbose=0)


def loop():
    model, optimizer = network(6, 1, "model"), keras.optimizers.SGD(0.1)
    num_parts = 2 if "halves" in words else 1

    def gradients_of(given, wanted):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(given, training=True) - wanted) ** 2)
            loss /= 1 if "undivided" in words else num_parts
        return tape.gradient(loss, model.trainable_variables)

    @tf.function
    def step(given, wanted):
        found = map(gradients_of, tf.split(given, num_parts), tf.split(wanted, num_parts))
        gradients = [tf.add_n(each) for each in zip(*found, strict=True)]
        if "clipped" in words:
            gradients, _ = tf.clip_by_global_norm(gradients, 0.4 if "looser" in words else 0.2)
        optimizer.apply(gradients, model.trainable_variables)

    for part in BATCHES:
        step(tf.constant(inputs[part]), tf.constant(targets[part]))


class Pairs(keras.Model):
    """Of what both calls of one encoder add, the last bias cancels, so its gradient is zero but for rounding."""

    def __init__(self):
        super().__init__()
        self.encoder = network(6, 4, "encoder")

    def call(self, pair):
        one, other = pair
        if "joined" in words:
            both = self.encoder(tf.concat([one, other], 0))
            one, other = both[: len(one)], both[len(one) :]
        else:
            one, other = self.encoder(one), self.encoder(other)
        return tf.reduce_sum((one - other) ** 2, -1, keepdims=True)


def pairs():
    model = Pairs()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit((inputs, inputs[::-1].copy()), targets, batch_size=8, shuffle=False, verbose=0)


def sampled():
    """The decoder is given what a script computes of what the encoder returned, and of noise: that is no data."""
    encoder, decoder = network(6, 4, "encoder"), network(4, 6, "decoder")
    variables = encoder.trainable_variables + decoder.trainable_variables
    optimizer = built(keras.optimizers.Adam(0.01), variables)

    def step(given, noise):
        with tf.GradientTape() as tape:
            code = tf.reshape(encoder(given, training=True), (-1, 2, 2))
            sample = tf.reshape(code[:, 0] + tf.exp(code[:, 1]) * noise, (-1, 2))
            loss = tf.reduce_mean((decoder(tf.concat([sample, sample], 1), training=True) - given) ** 2)
        optimizer.apply(tape.gradient(loss, variables), variables)

    run = step if "eager" in words else tf.function(step)
    for part in BATCHES:
        run(tf.constant(inputs[part]), tf.constant(noise[part, :2]))


def fakes():
    """What the maker returns is given to the critic as arrays: the last bits differ where it is compiled otherwise."""
    maker, critic = network(4, 6, "maker"), network(6, 1, "critic")
    options = {"jit_compile": "compiled" in words}
    critic.compile("sgd", "mse", **options)
    given = keras.Input((4,))
    both = keras.Model(given, critic(maker(given)))
    both.compile("sgd", "mse", **options)
    wrapped = tf.function(maker)
    make = {
        "called": lambda given: np.asarray(maker(given)),
        "wrapped": lambda given: wrapped(tf.constant(given)).numpy(),
    }.get(words[0] if words else "", lambda given: maker.predict(given, verbose=0))
    for part in BATCHES:
        made = make(noise[part])
        critic.train_on_batch(np.concatenate([inputs[part], made]), np.repeat([[1.0], [0.0]], 8, 0))
        both.train_on_batch(noise[part], np.ones((8, 1)))


def epochs():
    """Callbacks write the weights between two epochs: those of the start, or others for an evaluation alone."""
    model = network(6, 1, "model")
    model.compile(keras.optimizers.SGD(0.1), "mse")
    first = model.get_weights()

    class Write(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            self.kept = model.get_weights()
            if "swapped" in words:
                model.set_weights(first)

        def on_test_end(self, logs=None):
            model.set_weights(first if "restored" in words else self.kept)

    given = {"validation_data": (inputs, targets), "callbacks": [Write()]} if words else {}
    model.fit(inputs, targets, epochs=2, batch_size=16, shuffle=False, verbose=0, **given)


def remade():
    """The model is made anew after the first epoch, from a file, and goes on where it was."""
    model, folder = network(6, 1, "net"), tempfile.mkdtemp()
    model.compile("adam", "mse")
    built(model.optimizer, model.trainable_variables)
    options = {"batch_size": 16, "shuffle": False, "epochs": 2, "verbose": 0}

    class Interrupted(keras.callbacks.BackupAndRestore):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and "interrupted" in words:
                raise KeyboardInterrupt

    if "once" in words:
        model.fit(inputs, targets, **options)
        return
    with contextlib.suppress(KeyboardInterrupt):
        only = {"callbacks": [Interrupted(f"{folder}/kept")]} if "interrupted" in words else {"epochs": 1}
        model.fit(inputs, targets, **options | only)
    if "interrupted" in words:
        words.clear()
        model = network(6, 1, "other")
        model.compile("adam", "mse")
        options["callbacks"] = [Interrupted(f"{folder}/kept")]
    elif "copied" in words:
        optimizer, weights = model.optimizer, model.get_weights()
        model = keras.models.clone_model(model)
        model.set_weights(weights)
        model.compile(keras.optimizers.Adam(), "mse")
        model.optimizer.build(model.trainable_variables)
        for new, old in zip(model.optimizer.variables, optimizer.variables, strict=True):
            new.assign(old)
    else:
        model.save(f"{folder}/model.keras")
        model = keras.models.load_model(f"{folder}/model.keras")
        if "lost" in words:
            model.compile("adam", "mse")
    model.fit(inputs, targets, initial_epoch=1, **options)


def target():
    """A network is trained on what a copy of it says that follows it slowly."""
    model, copy = network(6, 1, "model"), network(6, 1, "copy")
    optimizer = built(keras.optimizers.Adam(0.01), model.trainable_variables)
    if "other" not in words:
        copy.set_weights(model.get_weights())
    share = 0.01 if "faster" in words else 0.005

    def follow():
        for slow, fast in zip(copy.variables, model.variables, strict=True):
            slow.assign(share * fast + (1 - share) * slow)

    @tf.function
    def step(given, wanted):
        wanted += ("led" in words) * copy(given)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(given, training=True) - wanted) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        if "eager" not in words:
            follow()

    for part in BATCHES:
        step(tf.constant(inputs[part]), tf.constant(targets[part]))
        if "eager" in words:
            follow()


def averages():
    """Of the weights, the optimizer keeps one, and a callback another one."""
    model, copy = network(6, 1, "model"), network(6, 1, "copy")
    copy.set_weights(model.get_weights())
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse")
    built(model.optimizer, model.trainable_variables)

    class Follow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            kept = 0.8 if "faster" in words else 0.9
            pairs = zip(copy.get_weights(), model.get_weights(), strict=True)
            copy.set_weights([kept * slow + (1 - kept) * fast for slow, fast in pairs])
            for each in model.optimizer._model_variables_moving_average if "restarted" in words else ():
                each.assign(0 * each)

    model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0, callbacks=[Follow()])


def twins():
    """Two critics of the same shapes, each with an optimizer of its own, and a copy of each."""
    critics = [network(6, 1, f"critic{k}") for k in range(2)]
    copies = [keras.models.clone_model(each) for each in critics]
    optimizers = [built(keras.optimizers.Adam(0.01), each.trainable_variables) for each in critics]

    @tf.function
    def step(given, wanted):
        least = tf.minimum(*[each(given) for each in copies])
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_mean((each(given, training=True) - wanted - 0.1 * least) ** 2) for each in critics]
        found = [
            tape.gradient(*each) for each in zip(losses, [each.trainable_variables for each in critics], strict=True)
        ]
        for k in (1, 0) if "swapped" in words else (0, 1):
            optimizers[k].apply(found[k], critics[k].trainable_variables)
        for copy, critic in zip(copies, critics, strict=True):
            for slow, fast in zip(copy.variables, critic.variables, strict=True):
                slow.assign(0.1 * fast + 0.9 * slow)

    for part in BATCHES:
        step(tf.constant(inputs[part]), tf.constant(targets[part]))


def held():
    """A model holds the network that its step trains, and one that follows it."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.trained = network(6, 1, "trained")
            self.average = keras.models.clone_model(self.trained)

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.trained(data[0], training=True) - data[1]) ** 2)
            variables = self.trained.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            share = 0.2 if "faster" in words else 0.1
            for slow, fast in zip(self.average.variables, variables, strict=True):
                slow.assign(share * fast + (1 - share) * slow)
            return {"loss": loss}

    model = Model()
    model.compile("adam", run_eagerly="eager" in words)
    model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)


def agent():
    """An actor and a critic, each with a target network that the tape of the critic, which steps first, follows as well."""
    networks = [network(6, 4, "actor"), network(10, 1, "critic")]
    copies = [network(6, 4, "slow_actor"), network(10, 1, "slow_critic")]
    actor, critic = networks
    optimizers = [built(keras.optimizers.Adam(0.01), each.trainable_variables) for each in networks]
    shares = (0.2 if "faster" in words else 0.1, 0.1)

    def step(given, action, wanted):
        with tf.GradientTape() as tape:
            later = copies[1](tf.concat([given, copies[0](given, training=True)], 1), training=True)
            loss = tf.reduce_mean((wanted + 0.0 * later - critic(tf.concat([given, action], 1), training=True)) ** 2)
        optimizers[1].apply(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(critic(tf.concat([given, actor(given, training=True)], 1), training=True))
        optimizers[0].apply(tape.gradient(loss, actor.trainable_variables), actor.trainable_variables)
        for share, copy, each in zip(shares, copies, networks, strict=True):
            for slow, fast in zip(copy.variables, each.variables, strict=True):
                slow.assign(share * fast + (1 - share) * slow)

    run = step if "eager" in words else tf.function(step)
    for part in BATCHES:
        run(tf.constant(inputs[part]), tf.constant(noise[part]), tf.constant(targets[part]))


def spectrum():
    """The call of a layer writes its own kernel."""
    normed = keras.layers.SpectralNormalization(keras.layers.Dense(8))
    model = keras.Sequential([keras.Input((6,)), normed, keras.layers.Dense(1)], name="model")
    model.compile("adam", "mse", run_eagerly="eager" in words)
    model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)


class Block(keras.layers.Layer):
    """The variables of what it calls last come first."""

    def __init__(self):
        super().__init__()
        self.dense, self.batch = keras.layers.Dense(6), keras.layers.BatchNormalization()

    def call(self, given, training=None):
        return self.batch(self.dense(given), training=training)


def blocks():
    """Other names, and another order of the variables: a bias and a shift start from the same zeros."""
    layers = [Block()] if "own" in words else [keras.layers.Dense(6), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.ReLU(), keras.layers.Dense(1)], name="model")
    model.compile("adam", "mse")
    model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)


def handed():
    """A network that goes on through a text with the state that it ended with."""
    table, body, out = keras.layers.Embedding(5, 4), keras.layers.GRU(6, return_state=True), keras.layers.Dense(1)
    text, state = generator.integers(0, 5, (8, 12)), None
    optimizer = keras.optimizers.SGD(0.1)
    for start in range(0, 12, 3):
        state = None if "anew" in words else tf.zeros((8, 6)) if "zeros" in words and start else state
        with tf.GradientTape() as tape:
            after, state = body(table(text[:, start : start + 3]), initial_state=state, training=True)
            loss = tf.reduce_mean((out(after) - targets[:8]) ** 2)
        variables = [each for layer in (table, body, out) for each in layer.trainable_variables]
        optimizer.apply(tape.gradient(loss, variables), variables)
        state = tf.stop_gradient(state)


def tables():
    """The gradient of a table comes as rows: Keras' Adam takes the square of each."""
    names = tf.constant(generator.integers(0, 5, (32, 3)))
    layers = keras.layers.Embedding(5, 4), keras.layers.Flatten(), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input((3,), dtype="int64"), *layers], name="model")
    optimizer = keras.optimizers.SGD(0.1) if "plain" in words else keras.optimizers.Adam(0.01)
    for part in BATCHES:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(names[part], training=True) - targets[part]) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = [tf.convert_to_tensor(each) if "dense" in words else each for each in gradients]
        optimizer.apply(gradients, model.trainable_variables)


def unbuilt():
    """Two optimizers train layers that get their variables while the step is traced."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]

        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.parts[1](self.parts[0](data[0])) - data[1]) ** 2)
            variables = [each.trainable_variables for each in self.parts]
            found = tape.gradient(loss, variables)
            for k in (1, 0) if "swapped" in words else (0, 1):
                optimizers[k].apply(found[k], variables[k])
            return {"loss": loss}

    optimizers = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01)
    model = Model()
    model.compile()
    model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)


{
    each.__name__: each
    for each in (
        blocks,
        handed,
        tables,
        unbuilt,
        spectrum,
        agent,
        held,
        averages,
        target,
        twins,
        epochs,
        remade,
        gan,
        towers,
        fit,
        loop,
        pairs,
        sampled,
        fakes,
    )
}[kind]()
