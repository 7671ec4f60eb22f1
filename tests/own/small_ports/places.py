"""Small ports of what depends on places: rotary and relative positions, pooled tables, vectors that are compared, dropout."""

import numpy as np

from tests.own.small_ports.pieces import TIME, WIDTH, SmallPorts, layer, module, part

PORTS = SmallPorts()
right, wrong = PORTS.right, PORTS.wrong
ANGLES = np.outer(np.arange(TIME), 1 / 10000 ** (np.arange(0, 4, 2) / 4))


def rotated(x, array, cat, stack, sign=1, are_pairs=False):
    c, s = (array(each, dtype=x.dtype) for each in (np.cos(ANGLES), sign * np.sin(ANGLES)))
    x1, x2 = (x[..., 0::2], x[..., 1::2]) if are_pairs else (x[..., :2], x[..., 2:])
    return (stack if are_pairs else cat)([x1 * c - x2 * s, x2 * c + x1 * s])


def torch_rotary(torch, **how):
    class Rotary(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

        def forward(self, h):
            q, k, v = (each(h).unflatten(-1, (3, 4)).transpose(1, 2) for each in (self.q, self.k, self.v))
            q, k = (
                rotated(x, torch.tensor, lambda x: torch.cat(x, -1), lambda x: torch.stack(x, -1).flatten(-2), **how)
                for x in (q, k)
            )
            return ((q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)

    return Rotary()


def tf_rotary(keras, **how):
    ops = keras.ops

    def pairs(x):
        return ops.reshape(ops.stack(x, -1), (-1, 3, TIME, 4))

    class Rotary(keras.layers.Layer):
        def build(self, shape):
            self.q, self.k, self.v = (keras.layers.Dense(WIDTH, name=name) for name in "qkv")
            for each in (self.q, self.k, self.v):
                each.build(shape)

        def call(self, h):
            projected = [ops.reshape(each(h), (-1, TIME, 3, 4)) for each in (self.q, self.k, self.v)]
            q, k, v = (ops.transpose(each, (0, 2, 1, 3)) for each in projected)
            q, k = (rotated(x, ops.convert_to_tensor, lambda x: ops.concatenate(x, -1), pairs, **how) for x in (q, k))
            made = ops.matmul(ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * 0.5), v)
            return ops.reshape(ops.transpose(made, (0, 2, 1, 3)), (-1, TIME, WIDTH))

    return Rotary(name="rotary")


def torch_relative(torch):
    class Relative(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.rel = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Embedding(2 * TIME - 1, 1)

        def forward(self, h):
            at = torch.arange(TIME)
            scores = self.q(h) @ h.transpose(-1, -2) + self.rel(at[None] - at[:, None] + TIME - 1)[..., 0]
            return scores.softmax(-1) @ h

    return Relative()


def tf_relative(keras, sign=1):
    ops = keras.ops

    class Relative(keras.layers.Layer):
        def build(self, shape):
            self.q, self.rel = keras.layers.Dense(WIDTH, name="q"), keras.layers.Embedding(2 * TIME - 1, 1, name="rel")
            self.q.build(shape)
            self.rel.build()

        def call(self, h):
            at = ops.arange(TIME)
            places = sign * (at[None] - at[:, None]) + TIME - 1
            scores = ops.matmul(self.q(h), ops.transpose(h, (0, 2, 1))) + self.rel(places)[..., 0]
            return ops.matmul(ops.softmax(scores), h)

    return Relative(name="relative")


def torch_bag(torch, mode="sum"):
    class Bag(torch.nn.Module):
        takes_ids = True

        def __init__(self):
            super().__init__()
            self.bag = torch.nn.EmbeddingBag(20, WIDTH, mode=mode)

        def forward(self, h, ids):
            return h.mean(1) * self.bag(ids)

    return Bag()


def tf_bag(keras, how="sum"):
    bag, ops = keras.layers.Embedding(20, WIDTH, name="bag"), keras.ops

    def run(h, ids):
        return ops.mean(h, 1) * getattr(ops, how)(bag(ids), 1)

    run.takes_ids = True
    return run


def torch_likeness(torch, is_cosine=False):
    class Likeness(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(WIDTH, 8), torch.nn.Linear(WIDTH, 8)

        def forward(self, h):
            a, b = self.a(h), self.b(h)
            return h * (torch.nn.functional.cosine_similarity(a, b) if is_cosine else (a * b).sum(-1))[:, None]

    return Likeness()


def tf_likeness(keras, is_cosine=False):
    a, b = keras.layers.Dense(8, name="a"), keras.layers.Dense(8, name="b")
    return lambda h: h * keras.layers.Dot(1, normalize=is_cosine)([a(h), b(h)])


def torch_dropping(torch, is_before=True, share=0.3, after=0.1):
    functional = torch.nn.functional

    class Dropping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, h):
            h = self.inner(functional.dropout(h, share, self.training)) if is_before else self.inner(h)
            h = h if is_before else functional.dropout(h, p=share, training=self.training)
            return functional.dropout(h.tanh(), after, self.training)

    return Dropping()


def tf_dropping(keras):
    class Dropping(keras.layers.Layer):
        def build(self, shape):
            self.inner, self.seed = keras.layers.Dense(WIDTH, name="inner"), keras.random.SeedGenerator(0)
            self.inner.build(shape)

        def call(self, h, training=False):
            h = self.inner(keras.random.dropout(h, 0.3, seed=self.seed) if training else h)
            return keras.random.dropout(keras.ops.tanh(h), 0.1, seed=self.seed) if training else keras.ops.tanh(h)

    return Dropping(name="dropping")


right("rotary", "tokens", torch_rotary, tf_rotary)
right("rotary pairs", "tokens", part(torch_rotary, are_pairs=True), part(tf_rotary, are_pairs=True))
wrong(
    "rotary halves",
    "tokens",
    part(torch_rotary, are_pairs=True),
    tf_rotary,
    "torch takes neighbours as pairs, TensorFlow",
)
wrong("rotary direction", "tokens", torch_rotary, part(tf_rotary, sign=-1), "by an angle of 1, TensorFlow of -1")
right("relative", "tokens", torch_relative, tf_relative)
wrong("relative direction", "tokens", torch_relative, part(tf_relative, sign=-1), "to another in the other direction")
right("bag", "tokens", torch_bag, tf_bag)
wrong("mean for bag", "tokens", torch_bag, part(tf_bag, how="mean"), "by the sum, TensorFlow by the mean")
wrong("bag of means", "tokens", part(torch_bag, mode="mean"), tf_bag, "by the mean, TensorFlow by the sum")
COSINES = part(torch_likeness, is_cosine=True), part(tf_likeness, is_cosine=True)
right("dot", "points", torch_likeness, tf_likeness)
right("cosine", "points", *COSINES)
wrong("dot for cosine", "points", COSINES[0], tf_likeness, "torch takes the cosine, TensorFlow the dot product")
wrong("cosine for dot", "points", torch_likeness, COSINES[1], "torch takes the dot product, TensorFlow the cosine")
KERAS = "L.Dropout({})>>L.Dense(12)>>L.Activation('tanh')>>L.Dropout(0.1)"
LATER = layer("L.Dense(12)>>L.Dropout(0.3)>>L.Activation('tanh')>>L.Dropout(0.1)")
right("function that drops", "points", torch_dropping, layer(KERAS.format(0.3)))
right("functions that drop", "points", torch_dropping, tf_dropping)
right(
    "layers that drop",
    "points",
    module("nn.Sequential(nn.Dropout(0.3), nn.Linear(12, 12), nn.Tanh(), nn.Dropout(0.1))"),
    tf_dropping,
)
wrong("function that drops later", "points", torch_dropping, LATER, "drops elements of the input of `piece.inner`")
wrong("function that drops more", "points", torch_dropping, layer(KERAS.format(0.7)), "which is what torch keeps")
wrong(
    "function that drops alone",
    "points",
    part(torch_dropping, share=0.0),
    layer(KERAS.format(0.3)),
    "torch drops nothing",
)

globals().update(PORTS.in_file())
