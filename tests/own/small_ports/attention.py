"""Small ports of attention, and of positions and tokens that are added to a sequence."""

import numpy as np

from tests.own.small_ports.pieces import TIME, WIDTH, SmallPorts, part

PORTS = SmallPorts()
right, wrong = PORTS.right, PORTS.wrong
HEADS = 3


def torch_attention(torch, scale=None, axis=-1, is_back=True, mask="", order="qkv", residual=1.0, norm="pre"):
    nn = torch.nn

    class Attention(nn.Module):
        takes_ids = mask == "padding"

        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH, eps=1e-6) if norm else None
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, h, ids=None):
            y = self.norm(h) if norm == "pre" else h
            q, k, v = (
                {"q": self.q, "k": self.k, "v": self.v}[name](y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for name in order
            )
            scores = q @ k.transpose(-1, -2) * (scale or (WIDTH // HEADS) ** -0.5)
            if mask == "padding":
                scores = scores.masked_fill((ids == 0)[:, None, None], -1e9)
            elif mask:
                hidden = torch.ones(TIME, TIME, dtype=torch.bool).triu(int(mask))
                scores = scores.masked_fill(hidden, -torch.inf)
            made = scores.softmax(axis) @ v
            made = (made.transpose(1, 2) if is_back else made).reshape(len(h), TIME, WIDTH)
            h = h * residual + self.o(made) if residual else self.o(made)
            return self.norm(h) if norm == "post" else h

    return Attention()


def tf_attention(keras, scale=None, axis=-1, is_back=True, mask="", order="qkv", residual=1.0, norm="pre"):
    layers, ops = keras.layers, keras.ops
    normed = layers.LayerNormalization(epsilon=1e-6, name="norm") if norm else None
    q_, k_, v_, o_ = (layers.Dense(WIDTH, name=name) for name in "qkvo")

    def run(h, ids=None):
        y = normed(h) if norm == "pre" else h
        q, k, v = (
            ops.transpose(
                ops.reshape({"q": q_, "k": k_, "v": v_}[name](y), (-1, TIME, HEADS, WIDTH // HEADS)), (0, 2, 1, 3)
            )
            for name in order
        )
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * (scale or (WIDTH // HEADS) ** -0.5)
        if mask == "padding":
            scores = ops.where(ops.equal(ids, 0)[:, None, None], -1e9, scores)
        elif mask:
            scores = ops.where(ops.convert_to_tensor(np.triu(np.ones((TIME, TIME), bool), int(mask))), -1e9, scores)
        made = ops.matmul(ops.softmax(scores, axis), v)
        made = ops.reshape(ops.transpose(made, (0, 2, 1, 3)) if is_back else made, (-1, TIME, WIDTH))
        h = h * residual + o_(made) if residual else o_(made)
        return normed(h) if norm == "post" else h

    run.takes_ids = mask == "padding"
    return run


def torch_positions(torch, start=0, scale=1.0):
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.pos = torch.nn.Embedding(TIME + 2, WIDTH)

        def forward(self, h):
            return h * scale + self.pos(torch.arange(start, TIME + start))

    return Positions()


def tf_positions(keras, start=0, scale=1.0, is_table=True):
    class Positions(keras.layers.Layer):
        def build(self, shape):
            self.pos = keras.layers.Embedding(TIME + 2, WIDTH, name="pos")
            self.pos.build((None,))

        def call(self, h):
            return h * scale + self.pos(keras.ops.arange(start, TIME + start))

    return Positions(name="positions")


def torch_raw_positions(torch, start=0):
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.pos = torch.nn.Parameter(torch.randn(TIME + 2, WIDTH))

        def forward(self, h):
            return h + self.pos[start : start + TIME]

    return Positions()


def tf_raw_positions(keras, start=0):
    class Positions(keras.layers.Layer):
        def build(self, shape):
            self.pos = self.add_weight(shape=(TIME + 2, WIDTH), name="pos")

        def call(self, h):
            return h + self.pos[start : start + TIME]

    return Positions(name="positions")


def torch_class_token(torch):
    class Token(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.token = torch.nn.Parameter(torch.randn(1, 1, WIDTH))
            self.pos = torch.nn.Parameter(torch.randn(1, TIME + 1, WIDTH))

        def forward(self, h):
            return (torch.cat([self.token.expand(len(h), -1, -1), h], 1) + self.pos).tanh()

    return Token()


def tf_class_token(keras, is_first=False):
    ops = keras.ops

    class Token(keras.layers.Layer):
        def build(self, shape):
            self.token = self.add_weight(shape=(1, 1, WIDTH), name="token")
            self.pos = self.add_weight(shape=(1, TIME + 1, WIDTH), name="pos")

        def call(self, h):
            token = ops.broadcast_to(self.token, (ops.shape(h)[0], 1, WIDTH))
            if is_first:
                return ops.tanh(ops.concatenate([token, h + self.pos[:, 1:]], 1))
            return ops.tanh(ops.concatenate([token, h], 1) + self.pos)

    return Token(name="token")


def torch_layer(torch):
    """The framework's own layer, which does not look at padding."""

    class Layer(torch.nn.Module):
        takes_ids = True

        def __init__(self):
            super().__init__()
            self.inner = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

        def forward(self, h, ids):
            return self.inner(h, h, h, key_padding_mask=ids == 0, need_weights=False)[0]

    return Layer()


def tf_layer(keras, mask="keys"):
    inner, ops = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name="inner"), keras.ops

    def run(h, ids):
        seen = ops.not_equal(ids, 0)[:, None, :]
        masks = {"keys": seen, "others": ops.logical_not(seen), "none": None, "queries": ops.swapaxes(seen, 1, 2)}
        return inner(h, h, attention_mask=masks[mask])

    run.takes_ids = True
    return run


def torch_grouped(torch):
    """Queries of two heads share their keys and values."""
    nn, size = torch.nn, WIDTH // 4

    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.output = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.key, self.value = nn.Linear(WIDTH, 2 * size), nn.Linear(WIDTH, 2 * size)

        def forward(self, h):
            q, k, v = (each(h).unflatten(-1, (-1, size)).transpose(1, 2) for each in (self.query, self.key, self.value))
            made = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            return self.output(made.transpose(1, 2).flatten(2))

    return Grouped()


def tf_grouped(keras):
    inner = keras.layers.GroupQueryAttention(WIDTH // 4, 4, 2, name="inner")
    return lambda h: inner(h, h)


attention, keras_attention = torch_attention, tf_attention
HIDDEN = "torch hides the last keys of some examples, TensorFlow hides"
right("shared keys", "tokens", torch_grouped, tf_grouped)
right("layer with a mask", "tokens", torch_layer, tf_layer)
wrong("layer without a mask", "tokens", torch_layer, part(tf_layer, mask="none"), f"{HIDDEN} no keys")
wrong("layer with the other mask", "tokens", torch_layer, part(tf_layer, mask="others"), f"{HIDDEN} the first keys")
wrong("layer with hidden queries", "tokens", torch_layer, part(tf_layer, mask="queries"), "all keys of some queries")
right("class token", "tokens", torch_class_token, tf_class_token)
wrong("positions before the token", "tokens", torch_class_token, part(tf_class_token, is_first=True), "and then adds")
right("attention", "tokens", attention, keras_attention)
right("causal", "tokens", part(attention, mask="1"), part(keras_attention, mask="1"))
right("padded", "tokens", part(attention, mask="padding"), part(keras_attention, mask="padding"))
right("post norm", "tokens", part(attention, norm="post"), part(keras_attention, norm="post"))
right("positions", "tokens", torch_positions, tf_positions)
right("raw positions", "tokens", torch_raw_positions, tf_raw_positions)
wrong("axis", "tokens", attention, part(keras_attention, axis=2), "softmax over the keys, TensorFlow over the queries")
wrong("axis of heads", "tokens", attention, part(keras_attention, axis=1), "the softmax over")
wrong(
    "heads back", "tokens", attention, part(keras_attention, is_back=False), "heads are not transposed back in TensorF"
)
wrong("scale", "tokens", attention, part(keras_attention, scale=12**-0.5), "scales the attention by 1/sqrt(4)")
wrong("odd scale", "tokens", attention, part(keras_attention, scale=0.37), "TensorFlow 0.37 times")
wrong("causal ahead", "tokens", part(attention, mask="1"), part(keras_attention, mask="2"), "causal mask off by one")
wrong("no mask", "tokens", part(attention, mask="padding"), keras_attention, "hides")
wrong("exchanged", "tokens", attention, part(keras_attention, order="kqv"), "query")
wrong("norm place", "tokens", attention, part(keras_attention, norm="post"), "torch runs")
wrong("no residual", "tokens", attention, part(keras_attention, residual=0), "TensorFlow does not")
wrong("half residual", "tokens", attention, part(keras_attention, residual=0.5), "0.5 times")
wrong("positions from 1", "tokens", torch_positions, part(tf_positions, start=1), "1 more in TensorFlow")
wrong("raw positions from 1", "tokens", torch_raw_positions, part(tf_raw_positions, start=1), "rows 0 to 5")
wrong("scale of embedding", "tokens", part(torch_positions, scale=12**0.5), tf_positions, "3.4641 times")

globals().update(PORTS.in_file())
