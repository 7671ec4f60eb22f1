"""Ports of recurrent layers, of tables that are averaged, and of masks."""

import functools

from tests.own.whole_ports.tables import ROUNDED, defect, model

part = functools.partial


def torch_lstm(kind="LSTM", frozen=True, padding=None):
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(31, 8, padding_idx=padding)
            self.rnn = getattr(nn, kind)(8, 16, batch_first=True)
            self.out = nn.Linear(16, 31)
            if frozen:
                self.rnn.bias_hh_l0.requires_grad_(False)
                torch.nn.init.zeros_(self.rnn.bias_hh_l0)

        def forward(self, ids):
            return self.out(self.rnn(self.table(ids))[0])

    return Net()


def tf_lstm(kind="LSTM", **settings):
    import keras
    from keras import layers

    rnn = getattr(layers, kind)(16, return_sequences=True, **settings)
    return keras.Sequential([keras.Input((6,), dtype="int64"), layers.Embedding(31, 8), rnn, layers.Dense(31)])


def gates_keras():
    """An LSTM by hand whose gates are in the order i, g, f, o."""
    import keras
    import tensorflow as tf
    from keras import layers

    class Hand(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(8, 64), name="kernel")
            self.recurrent_kernel = self.add_weight(shape=(16, 64), name="recurrent_kernel")
            self.bias = self.add_weight(shape=(64,), name="bias")

        def call(self, x):
            h = c = tf.zeros_like(x[:, 0, :1]) + tf.zeros((16,), x.dtype)
            outputs = []
            for t in range(6):
                i, g, f, o = tf.split(
                    tf.matmul(x[:, t], self.kernel) + tf.matmul(h, self.recurrent_kernel) + self.bias, 4, -1
                )
                c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
                h = tf.sigmoid(o) * tf.tanh(c)
                outputs.append(h)
            return tf.stack(outputs, 1)

    hand = Hand(name="hand")
    return keras.Sequential([keras.Input((6,), dtype="int64"), layers.Embedding(31, 8), hand, layers.Dense(31)])


def bag_torch():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(31, 8), nn.Linear(8, 4)

        def forward(self, ids):
            return self.out(self.table(ids).mean(1))

    return Net()


def bag_keras():
    import keras
    from keras import layers

    return keras.Sequential(
        [keras.Input((6,), dtype="int64"), layers.Embedding(31, 8), layers.GlobalAveragePooling1D(), layers.Dense(4)]
    )


def pooled_torch():
    from torch import nn

    return nn.Sequential(nn.EmbeddingBag(31, 8, mode="mean"), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def pooled_keras():
    """What torch has in one layer, and its GELU, as functions between the layers."""
    import keras
    from keras import layers

    ids = keras.Input((6,), dtype="int64")
    pooled = keras.ops.mean(layers.Embedding(31, 8)(ids), axis=1)
    hidden = keras.activations.gelu(layers.Dense(16)(pooled), approximate=False)
    return keras.Model(ids, layers.Dense(4)(hidden))


def stacked_torch():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(31, 16), nn.Linear(16, 31)
            self.rnn = nn.GRU(16, 16, num_layers=2, batch_first=True)

        def forward(self, ids):
            return self.out(self.rnn(self.table(ids))[0])

    return Net()


def stacked_keras():
    import keras
    from keras import layers

    rnns = [layers.GRU(16, return_sequences=True) for _ in range(2)]
    return keras.Sequential([keras.Input((6,), dtype="int64"), layers.Embedding(31, 16), *rnns, layers.Dense(31)])


def both_ways_torch():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(31, 8), nn.Linear(32, 4)
            self.rnn = nn.GRU(8, 16, bidirectional=True, batch_first=True)

        def forward(self, ids):
            return self.out(self.rnn(self.table(ids))[0].mean(1))

    return Net()


def both_ways_keras():
    import keras
    from keras import layers

    rnn = layers.Bidirectional(layers.GRU(16, return_sequences=True))
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int64"),
            layers.Embedding(31, 8),
            rnn,
            layers.GlobalAveragePooling1D(),
            layers.Dense(4),
        ]
    )


def masked_torch():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(31, 8), nn.Linear(8, 4)

        def forward(self, ids, mask):
            x = self.table(ids) * mask[..., None]
            return self.out(x.sum(1) / mask.sum(1, keepdim=True))

    return Net()


def masked_keras():
    import keras
    from keras import layers

    ids, mask = keras.Input((6,), dtype="int64", name="ids"), keras.Input((6,), name="mask")
    x = layers.Embedding(31, 8)(ids) * mask[..., None]
    x = keras.ops.sum(x, 1) / keras.ops.sum(mask, 1, keepdims=True)
    return keras.Model({"ids": ids, "mask": mask}, layers.Dense(4)(x))


model("lstm", "tokens", torch_lstm, tf_lstm)
model("gru", "tokens", part(torch_lstm, "GRU", False), part(tf_lstm, "GRU"))
model("stacked", "tokens", stacked_torch, stacked_keras)
model("bidirectional", "sentences", both_ways_torch, both_ways_keras)
model("masked", "masked_sentences", masked_torch, masked_keras)
model("bag", "sentences", bag_torch, bag_keras)
model("pooled", "sentences", pooled_torch, pooled_keras, table=ROUNDED)
defect(
    "gates",
    "tokens",
    torch_lstm,
    gates_keras,
    ("rnn", "hand"),
    "torch's gates are in the order i, f, g, o, TensorFlow's in i, g, f, o",
)
defect(
    "double bias",
    "tokens",
    part(torch_lstm, frozen=False),
    tf_lstm,
    ("rnn.l0", "lstm/lstm_cell"),
    "torch has two biases where TensorFlow has one",
)
defect(
    "padding_idx",
    "tokens",
    part(torch_lstm, padding=0),
    tf_lstm,
    ("table", "embedding"),
    "torch does not train row 0 (padding_idx=0), TensorFlow does",
)
defect(
    "reset",
    "tokens",
    part(torch_lstm, "GRU", False),
    part(tf_lstm, "GRU", reset_after=False),
    ("rnn", "gru"),
    "torch's reset gate comes after the product with the state, TensorFlow's before it",
)


def continued_torch():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(31, 8), nn.Linear(8, 31)
            self.first, self.rnn = (nn.GRU(8, 8, batch_first=True) for _ in range(2))

        def forward(self, ids):
            return self.out(self.rnn(*self.first(self.table(ids)))[0])

    return Net()


def continued_keras(continued=True):
    import keras
    from keras import layers

    ids = keras.Input((6,), dtype="int64")
    h, state = layers.GRU(8, return_sequences=True, return_state=True)(layers.Embedding(31, 8)(ids))
    h = layers.GRU(8, return_sequences=True)(h, initial_state=state if continued else None)
    return keras.Model(ids, layers.Dense(31)(h))


model("continued", "tokens", continued_torch, continued_keras)
defect(
    "start",
    "tokens",
    continued_torch,
    part(continued_keras, False),
    ("rnn", "gru_1"),
    "torch starts from a state that it is given, TensorFlow from zeros",
)
