"""Outputs and losses of Keras models as they are in the wild: the natural twins of `wild_losses.py`."""

import numpy as np

import samestep

WEIGHTS = np.array([1.0, 2.0, 0.5])


def mlp():
    import keras
    from keras import layers

    return keras.Sequential([keras.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(3)])


def with_heads():
    import keras
    from keras import layers

    inputs = keras.Input((6,))
    hidden = layers.Dense(6, "tanh")(inputs)
    return keras.Model(
        inputs, {"near": layers.Dense(3)(hidden), "far": layers.Dense(3)(layers.Dense(6, "tanh")(hidden))}
    )


def of_each(outputs, targets):
    import tensorflow as tf

    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)


def of_all_heads(outputs, targets):
    return of_each(outputs["near"], targets) + of_each(outputs["far"], targets)


def mean(outputs, targets):
    import tensorflow as tf

    return tf.reduce_mean(of_each(outputs, targets))


def weighted(outputs, targets):
    import tensorflow as tf

    return of_each(outputs, targets) * tf.gather(tf.constant(WEIGHTS, outputs.dtype), targets)


def with_own_loss():
    import keras

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.mlp = mlp()

        def call(self, batch):
            return mean(self.mlp(batch["x"]), batch["labels"])

    return Net()


def language_model(classes_first=False):
    import keras
    from keras import layers

    last = [layers.Permute((2, 1))] if classes_first else []
    inputs = keras.Input((6,), dtype="int64")
    return keras.Sequential([inputs, layers.Embedding(16, 8), layers.Dense(16, "gelu"), layers.Dense(16), *last])


HEADS = samestep.Model(tf=with_heads, loss={"tf": of_all_heads})
MEAN = samestep.Model(tf=mlp, loss={"tf": mean}, reduction="mean")
WEIGHTED = samestep.Model(tf=mlp, loss={"tf": weighted}, reduction=lambda targets: WEIGHTS[targets].sum())
RETURNED = samestep.Model(tf=with_own_loss, loss="returned")
PADDED = samestep.Model(tf=language_model)
CLASSES_FIRST = samestep.Model(tf=lambda: language_model(classes_first=True))
