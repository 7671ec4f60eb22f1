"""Ports of a small GPT, its attention by hand, packed, or a layer of the framework."""

import functools
import math

from tests.own.whole_ports.tables import ROUNDED, defect, model

part = functools.partial


def torch_gpt(packed=False, scale=None, ahead=0, whole=False):
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            names = ["packed"] if packed else ["query", "key", "value"]
            for name in names:
                self.add_module(name, nn.Linear(16, 48 if packed else 16))
            self.out = nn.Linear(16, 16)

        def forward(self, x):
            parts = self.packed(x).chunk(3, -1) if packed else (self.query(x), self.key(x), self.value(x))
            q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in parts)
            scores = q @ k.transpose(-1, -2) * (scale or 8**-0.5)
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1 + ahead)
            scores = scores.masked_fill(hidden, -torch.inf)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
            return self.whole(x, x, x, attn_mask=mask, need_weights=False)[0]

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(31, 16)
            self.norm1, self.attention = nn.LayerNorm(16), Whole() if whole else Attention()
            self.norm2, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
            self.head = nn.Linear(16, 31)

        def forward(self, ids):
            x = self.tokens(ids)
            x = x + self.attention(self.norm1(x))
            return self.head(x + self.down(self.up(self.norm2(x)).tanh()))

    return GPT()


def tf_gpt(packed=False, scale=8**-0.5, ahead=0, whole=0, factor=None):
    import keras
    import tensorflow as tf
    from keras import layers

    class Attention(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            if packed:
                self.packed = layers.Dense(48)
            else:
                self.query, self.key, self.value = layers.Dense(16), layers.Dense(16), layers.Dense(16)
            self.out = layers.Dense(16)

        def call(self, x):
            parts = tf.split(self.packed(x), 3, -1) if packed else (self.query(x), self.key(x), self.value(x))
            q, k, v = (tf.transpose(tf.reshape(part, (-1, 6, 2, 8)), (0, 2, 1, 3)) for part in parts)
            scores = tf.matmul(q, k, transpose_b=True) * scale
            seen = tf.linalg.band_part(tf.ones((6, 6), scores.dtype), -1, ahead)
            made = tf.matmul(tf.nn.softmax(tf.where(seen > 0, scores, -math.inf)), v)
            return self.out(tf.reshape(tf.transpose(made, (0, 2, 1, 3)), (-1, 6, 16)))

    ids = keras.Input((6,), dtype="int64")
    x = layers.Embedding(31, 16)(ids)
    x = x * factor if factor else x
    y = layers.LayerNormalization(epsilon=1e-5)(x)
    x = x + (
        layers.MultiHeadAttention(whole, 16 // whole)(y, y, use_causal_mask=True)
        if whole
        else Attention(name="attention")(y)
    )
    y = layers.LayerNormalization(epsilon=1e-5)(x)
    x = x + layers.Dense(16)(layers.Dense(32, "tanh")(y))
    return keras.Model(ids, layers.Dense(31)(x))


model("gpt", "tokens", torch_gpt, tf_gpt)
model("packed_gpt", "tokens", part(torch_gpt, packed=True), tf_gpt)
model("unpacked_gpt", "tokens", torch_gpt, part(tf_gpt, packed=True))
model("whole_gpt", "tokens", part(torch_gpt, whole=True), part(tf_gpt, whole=2), table=ROUNDED)
model("half_whole_gpt", "tokens", torch_gpt, part(tf_gpt, whole=2), table=ROUNDED)
defect(
    "scale",
    "tokens",
    torch_gpt,
    part(tf_gpt, scale=0.25),
    ("attention.out", "attention/dense_3"),
    "torch scales the attention by 1/sqrt(8), TensorFlow by 1/sqrt(16)",
)
defect(
    "mask", "tokens", torch_gpt, part(tf_gpt, ahead=1), ("attention.out", "attention/dense_3"), "causal mask off by one"
)
defect(
    "heads",
    "tokens",
    part(torch_gpt, whole=True),
    part(tf_gpt, whole=4),
    ("attention.whole", "multi_head_attention"),
    "torch has 2 heads, TensorFlow 4",
)
defect(
    "factor",
    "tokens",
    torch_gpt,
    part(tf_gpt, factor=4.0),
    ("norm1", "layer_normalization"),
    "torch takes the output of `tokens`, TensorFlow 4 times",
)
