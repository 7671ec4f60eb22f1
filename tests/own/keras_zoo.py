"""Models as users bring them, in Keras."""

import functools

import numpy as np

import samestep


def images() -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(120, 8, 8, 1)), draw.integers(0, 10, 120)
    return inputs[:96], targets[:96], inputs[96:], targets[96:]


def sentences() -> tuple[object, ...]:
    """Ids and their mask, as two arrays of inputs."""
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 31, (120, 12))
    inputs = {"ids": ids, "mask": (np.arange(12) < draw.integers(3, 13, (120, 1))).astype(float)}
    targets = (ids[:, 0] > ids[:, 1]).astype(int)
    train, test = ({name: array[rows] for name, array in inputs.items()} for rows in (slice(96), slice(96, None)))
    return train, targets[:96], test, targets[96:]


def masked():
    import keras
    from keras import layers

    ids, mask = keras.Input((12,), dtype="int64", name="ids"), keras.Input((12,), name="mask")
    x = layers.Embedding(31, 8)(ids) * keras.ops.expand_dims(mask, -1)
    mean = keras.ops.sum(x, 1) / keras.ops.sum(mask, 1, keepdims=True)
    return keras.Model({"ids": ids, "mask": mask}, layers.Dense(2)(layers.Dense(16, activation="tanh")(mean)))


def functional():
    import keras
    from keras import layers

    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    x = layers.Add()([x, layers.Conv2D(4, 3, padding="same", activation="relu")(x)])
    x = layers.Flatten()(layers.MaxPooling2D()(x))
    return keras.Model(inputs, layers.Dense(10)(x))


def adding(weight=0.0, activity=0.0, added=0.0, normalized=False, summed=False):
    """A network whose layers add to its loss: regularizers of every kind, and one of its own."""
    import keras
    from keras import layers, regularizers

    class Adds(layers.Layer):
        def call(self, x):
            squares = keras.ops.square(x)
            self.add_loss(added * (keras.ops.sum(squares) if summed else keras.ops.mean(squares)))
            return x

    both = regularizers.L1L2(weight / 8, weight / 8) if weight else None
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(
                4, 3, activation="tanh", activity_regularizer=regularizers.L2(activity) if activity else None
            ),
            *([layers.BatchNormalization()] if normalized else []),
            *([Adds(name="adds")] if added else []),
            layers.Flatten(),
            layers.Dense(16, activation="tanh", kernel_regularizer=both, bias_regularizer="l1" if weight else None),
            layers.Dense(10, kernel_regularizer=regularizers.L2(weight) if weight else None),
        ]
    )


def balanced():
    """A loss of the batch's mean outputs, which is added in training alone, as routers of experts do."""
    import keras
    from keras import layers

    class Balanced(layers.Layer):
        def call(self, x, training=False):
            if training:
                self.add_loss(keras.ops.sum(keras.ops.square(keras.ops.mean(x, 0))))
            return x

    return keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Flatten(), layers.Dense(10), layers.Dropout(0.5), Balanced(name="balanced")]
    )


def leaking():
    import keras
    from keras import layers

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.flatten, self.out = layers.Flatten(), layers.Dense(10)

        def call(self, x):
            return {"logits": self.out(self.flatten(x)), "aux_loss": keras.ops.mean(x)}

    return Net()


def normed():
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def dropping():
    import keras
    from keras import layers

    return keras.Sequential([keras.Input((8, 8, 1)), layers.Flatten(), layers.Dropout(0.2), layers.Dense(10)])


def recurrent():
    import keras
    from keras import layers

    return keras.Sequential([keras.Input((8, 8, 1)), layers.Reshape((8, 8)), layers.LSTM(32), layers.Dense(10)])


def convolving_recurrently():
    import keras
    from keras import layers

    steps = [keras.Input((8, 8, 1)), layers.Reshape((2, 4, 8, 1)), layers.ConvLSTM2D(2, 3), layers.Flatten()]
    return keras.Sequential([*steps, layers.Dense(10)])


def subclassed():
    import keras
    from keras import layers

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.flatten, self.hidden = layers.Flatten(), layers.Dense(16, activation="tanh")
            self.norm, self.out = layers.LayerNormalization(), layers.Dense(10)

        def call(self, x):
            return {"logits": self.out(self.norm(self.hidden(self.flatten(x))))}

    return Net()


def unread():
    """A layer whose outputs nobody takes, as a head that is kept for later."""
    import keras
    from keras import layers

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.flatten, self.hidden = layers.Flatten(), layers.Dense(16, activation="tanh")
            self.later, self.out = layers.Dense(5), layers.Dense(10)

        def call(self, x):
            hidden = self.hidden(self.flatten(x))
            self.later(hidden)
            return self.out(hidden)

    return Net()


def shared():
    """A layer that is called three times, and whose weights are regularized."""
    import keras
    from keras import layers

    inputs, again = keras.Input((8, 8, 1)), layers.Dense(64, activation="tanh", kernel_regularizer="l2")
    x = layers.Flatten()(inputs)
    return keras.Model(inputs, layers.Dense(10)(again(again(again(x)))))


def bare():
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.ones((64, 10), tf.float64) / 64, name="kernel")

        def __call__(self, x):
            return tf.reshape(x, (-1, 64)) @ tf.cast(self.kernel, x.dtype)

    return Net()


def namesakes():
    """Two layers whose variables have one name."""
    import tensorflow as tf

    class Layer(tf.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.kernel = tf.Variable(tf.random.normal((inputs, outputs), dtype=tf.float64) / 8, name="w")

        def __call__(self, x):
            return x @ tf.cast(self.kernel, x.dtype)

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(64, 8), Layer(8, 10)

        def __call__(self, x):
            return self.second(tf.tanh(self.first(tf.reshape(x, (-1, 64)))))

    return Net()


FUNCTIONAL = samestep.Model(tf=functional)
SUBCLASSED = samestep.Model(tf=subclassed)
MASKED = samestep.Model(tf=masked)
PLAIN = samestep.Model(tf=adding)
REGULARIZED = samestep.Model(tf=functools.partial(adding, 0.5))
ADDING = samestep.Model(tf=functools.partial(adding, 0.5, 0.25, 0.125))
ADDING_NORMED = samestep.Model(tf=functools.partial(adding, 0.5, 0.25, 0.125, True))
SUMMING = samestep.Model(tf=functools.partial(adding, added=0.125, summed=True))
BALANCED = samestep.Model(tf=balanced)
LEAKING = samestep.Model(tf=leaking)
NORMED = samestep.Model(tf=normed)
DROPPING = samestep.Model(tf=dropping)
UNREAD = samestep.Model(tf=unread)
SHARED = samestep.Model(tf=shared)
RECURRENT = samestep.Model(tf=recurrent)
CONVOLVING_RECURRENTLY = samestep.Model(tf=convolving_recurrently)
BARE = samestep.Model(tf=bare)
NAMESAKES = samestep.Model(tf=namesakes)
