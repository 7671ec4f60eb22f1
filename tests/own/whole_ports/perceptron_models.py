"""Perceptrons in both frameworks."""

import itertools

import numpy as np


def torch_mlp(activation="Tanh", norm=False, outputs=3, approximate="none", widths=(6, 16, 12)):
    from torch import nn

    layers = []
    for inputs, width in itertools.pairwise(widths):
        kwargs = {"approximate": approximate} if activation == "GELU" else {}
        layers += [
            nn.Linear(inputs, width),
            *([nn.LayerNorm(width)] if norm else []),
            getattr(nn, activation)(**kwargs),
        ]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def tf_mlp(activation="tanh", norm=None, outputs=3, bias=True, last=None, second=..., widths=(6, 16, 12)):
    import keras
    from keras import layers

    net = keras.Sequential([keras.Input((widths[0],))])
    for number, width in enumerate(widths[1:]):
        used = second if number and second is not ... else activation
        net.add(layers.Dense(width, used if norm is None else None, use_bias=bias or not number))
        if norm is not None:
            net.add(layers.LayerNormalization(epsilon=norm))
            net.add(layers.Activation(used))
    net.add(layers.Dense(outputs, last))
    return net


def functional_mlp():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.out = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, x):
            x = self.first(x).relu()
            return self.out(x + nn.functional.silu(self.second(x)))

    return Net()


def functional_keras(residual_activation="silu"):
    import keras
    from keras import layers

    inputs = keras.Input((6,))
    x = layers.Dense(16, "relu")(inputs)
    y = layers.Dense(16, residual_activation)(x)
    return keras.Model(inputs, layers.Dense(3)(x + y))


def dropping_torch(rate=0.2):
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(rate), nn.Linear(16, 3))


def dropping_keras(rate=0.2):
    import keras
    from keras import layers

    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(16, "tanh"), layers.Dropout(rate, name="drop"), layers.Dense(3)]
    )


def plain_keras():
    """The residual network without its residual."""
    import keras
    from keras import layers

    inputs = keras.Input((6,))
    x = layers.Dense(16, "relu")(inputs)
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(16, "silu")(x)))


def leaky_torch():
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 3))


def leaky_keras():
    import keras
    from keras import layers

    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(16), layers.LeakyReLU(negative_slope=0.2), layers.Dense(3)]
    )


def module_tf():
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            draw = np.random.default_rng(1)
            self.first = tf.Variable(draw.normal(size=(6, 16)), name="first")
            self.second = tf.Variable(draw.normal(size=(16, 3)), name="second")

        def __call__(self, x):
            return tf.tanh(x @ self.first) @ self.second

    return Net()


def module_torch():
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.Tanh(), nn.Linear(16, 3, bias=False))


def raw_torch(turned=False):
    """A square kernel in a module that nobody knows."""
    import torch
    from torch import nn

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Parameter(torch.randn(6, 6) / 3)

        def forward(self, x):
            return x @ (self.mix.T if turned else self.mix)

    return nn.Sequential(Square(), nn.Tanh(), nn.Linear(6, 3))


def raw_keras():
    import keras
    from keras import layers

    class Square(layers.Layer):
        def build(self, shape):
            self.mix = self.add_weight(shape=(6, 6), name="mix")

        def call(self, x):
            return keras.ops.matmul(x, self.mix)

    return keras.Sequential([keras.Input((6,)), Square(), layers.Activation("tanh"), layers.Dense(3)])


def turned_keras():
    import keras
    from keras import layers

    class Turned(layers.Dense):
        def call(self, x):
            return keras.ops.matmul(x, keras.ops.transpose(self.kernel)) + self.bias

    turned = Turned(12, name="turned")
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(12, "tanh"), turned, layers.Activation("tanh"), layers.Dense(3)]
    )


def gelu_tanh(x):
    import keras

    return keras.activations.gelu(x, approximate=True)
