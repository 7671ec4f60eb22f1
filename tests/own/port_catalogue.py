"""A catalogue of small ports: one piece of a model in both frameworks, right, or with one mistake.

A piece stands between a front and a head that are right. A torch piece is made by a function of `torch`, a Keras piece by one
of `keras`; either returns what is called with the hidden activations, channels last on both sides.
"""

import functools
from collections.abc import Callable

import numpy as np

import samestep

Piece = Callable
WIDTH, TIME, SIDE = 12, 6, 8


def split(inputs, targets):
    return inputs[:48], targets[:48], inputs[48:], targets[48:]


def tokens():
    draw = np.random.default_rng(0)
    ids = draw.integers(1, 20, (64, TIME))
    return split(np.where(np.arange(TIME) < draw.integers(3, TIME + 1, (64, 1)), ids, 0), draw.integers(0, 3, 64))


def images():
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(64, SIDE, SIDE, 3)), draw.integers(0, 3, 64))


def points():
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(64, WIDTH)), draw.integers(0, 3, 64))


def torch_net(front, piece, width=WIDTH):
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = {
                "tokens": lambda: nn.Embedding(20, WIDTH),
                "images": lambda: nn.Conv2d(3, WIDTH, 3, padding=1),
                "points": lambda: nn.Linear(WIDTH, WIDTH),
            }[front]()
            self.piece = piece(torch)
            self.head = nn.Linear(width, 3)

        def forward(self, x):
            h = self.front(x.movedim(-1, 1)).movedim(1, -1) if front == "images" else self.front(x)
            h = self.piece(h, x) if getattr(self.piece, "takes_ids", False) else self.piece(h)
            return self.head(h.mean(tuple(range(1, h.ndim - 1))) if h.ndim > 2 else h)

    return Net()


def tf_net(front, piece, width=WIDTH):
    import keras
    from keras import layers

    shape, kind = {"tokens": ((TIME,), "int64"), "images": ((SIDE, SIDE, 3), None), "points": ((WIDTH,), None)}[front]
    fronts = {
        "tokens": lambda: layers.Embedding(20, WIDTH, name="front"),
        "images": lambda: layers.Conv2D(WIDTH, 3, padding="same", name="front"),
        "points": lambda: layers.Dense(WIDTH, name="front"),
    }
    x = keras.Input(shape, dtype=kind)
    made = piece(keras)
    h = (made.front() if hasattr(made, "front") else fronts[front]())(x)
    h = made(h, x) if getattr(made, "takes_ids", False) else made(h)
    h = keras.ops.mean(h, tuple(range(1, len(h.shape) - 1))) if len(h.shape) > 2 else h
    return keras.Model(x, layers.Dense(3, name="head")(h))


# --- pieces of torch and of Keras -------------------------------------------------------------------------------------


def call(torch_or_keras, text):
    """A function of `h` as text, in which `T` is torch, `F` its functional module, `K` keras and `O` its ops."""
    names = {"np": np}
    if torch_or_keras.__name__ == "torch":
        names |= {"T": torch_or_keras, "F": torch_or_keras.nn.functional}
    else:
        names |= {"K": torch_or_keras, "O": torch_or_keras.ops}
    return eval(f"lambda h: {text}", names)


def function(text):
    return functools.partial(_function, text=text)


def _function(library, text):
    made = call(library, text)
    if library.__name__ == "torch":

        class Piece(library.nn.Module):
            def forward(self, h):
                return made(h)

        return Piece()
    return made


def module(text):
    """A module of torch as text, called with channels second if it takes images or signals."""
    return functools.partial(_module, text=text)


def _module(torch, text):
    class Piece(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = eval(text, {"nn": torch.nn, "T": torch})

        def forward(self, h):
            is_spatial = h.ndim == 4
            made = self.inner(h.movedim(-1, 1) if is_spatial else h)
            made = made[0] if isinstance(made, tuple) else made
            return made.movedim(1, -1) if is_spatial else made

    return Piece()


def layer(text):
    """Layers of Keras as text, one after the other, separated by `>>`."""
    return functools.partial(_layer, text=text)


def _layer(keras, text):
    names = {"L": keras.layers, "O": keras.ops, "K": keras}
    found = [eval(each, names) for each in text.split(">>")]

    def run(h):
        for each in found:
            h = each(h)
        return h

    return run


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


part = functools.partial


def torch_last(torch):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.LSTM(WIDTH, 5, batch_first=True)

        def forward(self, h):
            return self.inner(h)[0][:, -1]

    return Last()


def torch_causal(torch):
    class Causal(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Conv1d(WIDTH, 8, 3, padding=2)

        def forward(self, h):
            return self.inner(h.transpose(1, 2))[..., :-2].transpose(1, 2)

    return Causal()


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


def masked_embedding(text):
    return functools.partial(_masked_embedding, text=text)


def _masked_embedding(keras, text):
    def run(h):
        return eval(text, {"L": keras.layers, "h": h})

    run.front = lambda: keras.layers.Embedding(20, WIDTH, mask_zero=True, name="front")
    return run


# --- losses and optimizers --------------------------------------------------------------------------------------------


def torch_cross(o, y, smoothing=0.0):
    from torch.nn import functional

    return functional.cross_entropy(o, y, reduction="none", label_smoothing=smoothing)


def tf_cross(o, y, smoothing=0.0, factor=1.0):
    import keras
    import tensorflow as tf

    hot = tf.one_hot(y, 3, dtype=o.dtype)
    return factor * keras.losses.categorical_crossentropy(hot, o, from_logits=True, label_smoothing=smoothing)


def torch_weighed(o, y, weights=(1.0, 1.0, 1.0), gamma=0.0):
    import torch

    each = torch_cross(o, y)
    return each * torch.tensor(weights, dtype=o.dtype)[y] * (1 - torch.exp(-each)) ** gamma


def torch_update(p, kind="Adam", decay=1.0, **settings):
    import torch

    made = getattr(torch.optim, kind)(p, 2**-7, **settings)
    schedule = torch.optim.lr_scheduler.ExponentialLR(made, decay)
    if decay < 1:
        made.register_step_post_hook(lambda *_: schedule.step())
    return made


def tf_update(kind="Adam", decay=1.0, **settings):
    import keras

    rate = 2**-7 if decay == 1 else keras.optimizers.schedules.ExponentialDecay(2**-7, 1, decay)
    return getattr(keras.optimizers, kind)(rate, **settings)


RIGHT: dict[str, samestep.Model] = {}
WRONG: dict[str, tuple[samestep.Model, str]] = {}
"""Name -> the model, and words of the cause; none where no cause is known."""
OF: dict[str, str] = {}


def right(name, data, torch, tf, width=WIDTH, **more):
    OF[name] = data
    RIGHT[name] = samestep.Model(torch=part(torch_net, data, torch, width), tf=part(tf_net, data, tf, width), **more)


def wrong(name, data, torch, tf, cause, width=WIDTH, **more):
    OF[name] = data
    made = samestep.Model(torch=part(torch_net, data, torch, width), tf=part(tf_net, data, tf, width), **more)
    WRONG[name] = (made, cause)


def optimizers(torch, tf):
    return {"optimizer": {"torch": part(torch_update, **torch), "tf": part(tf_update, **tf)}}


def losses(torch, tf):
    return {"loss": {"torch": part(torch_cross, **torch), "tf": part(tf_cross, **tf)}, "metric": "loss"}


# --- sequences --------------------------------------------------------------------------------------------------------

attention, keras_attention = torch_attention, tf_attention
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
POOLS = {"mean": "O.mean(h, 1)", "max": "O.max(h, 1)", "last": "h[:, -1]", "first": "h[:, 0]"}
wrong(
    "maximum", "tokens", function("h.mean(1)"), function("O.max(h, 1)"), "pools by the mean, TensorFlow by the maximum"
)
wrong("first", "tokens", function("h[:, 0]"), function("h[:, -1]"), "torch pools by the first position")
wrong("backwards", "tokens", function("h.flatten(1)"), function("O.reshape(O.flip(h, 1), (-1, 72))"), "reverse", 72)
wrong("shifted", "tokens", function("h[:, :-1]"), function("h[:, 1:]"), "takes")
wrong("rolled", "tokens", function("h.flatten(1)"), function("O.reshape(O.roll(h, 1, 1), (-1, 72))"), "other order", 72)
LATER = {"kind": "SGD", "momentum": 0.5}, {"kind": "SGD", "momentum": 0.9}
right("known factor", "tokens", function("h"), function("h * 3 - 1"), accept=("scale",))
right("known maximum", "tokens", function("h.mean(1)"), function("O.max(h, 1)"), accept=("pooling",))
FLAT = "O.reshape(O.flip(h, 1), (-1, 72))"
right("known order", "tokens", function("h.flatten(1)"), function(FLAT), 72, accept=("order",))
wrong(
    "after a factor",
    "tokens",
    function("h"),
    function("h * 3"),
    "momentum: 0.5",
    accept=("scale",),
    **optimizers(*LATER),
)
GATED = "h[..., :6] * F.sigmoid(h[..., 6:])"
right("gated", "tokens", function(GATED), function("h[..., :6] * O.sigmoid(h[..., 6:])"), 6)
wrong("gates", "tokens", function(GATED), function("h[..., 6:] * O.sigmoid(h[..., :6])"), "getitem", 6)
GRU, KERAS_GRU = "nn.GRU(12, 5, batch_first=True)", "L.GRU(5, return_sequences=True{})"
right("gru", "tokens", module(GRU), layer(KERAS_GRU.format("")), 5)
wrong("hard gates", "tokens", module(GRU), layer(KERAS_GRU.format(', recurrent_activation="hard_sigmoid"')), "hard", 5)
wrong("reset", "tokens", module(GRU), layer(KERAS_GRU.format(", reset_after=False")), "reset gate comes", 5)
wrong("relu gru", "tokens", module(GRU), layer(KERAS_GRU.format(', activation="relu"')), "relu", 5)
wrong("backward gru", "tokens", module(GRU), layer(KERAS_GRU.format(", go_backwards=True")), "last position to the", 5)
LSTM = "nn.LSTM(12, 5, batch_first=True)"
right("lstm", "tokens", module(LSTM), layer("L.LSTM(5, return_sequences=True)"), 5, accept=("double_bias",))
wrong("two biases", "tokens", module(LSTM), layer("L.LSTM(5, return_sequences=True)"), "two biases", 5)
right("last of lstm", "tokens", torch_last, layer("L.LSTM(5)"), 5, accept=("double_bias",))
HARD = 'L.LSTM(5, recurrent_activation="hard_sigmoid")'
wrong("last of hard lstm", "tokens", torch_last, layer(HARD), "hard", 5)
right("causal convolution", "tokens", torch_causal, layer('L.Conv1D(8, 3, padding="causal")'), 8)
GATES = "O.silu(h[..., 6:]) * h[..., :6]"
wrong("other gate", "tokens", function("F.silu(h[..., :6]) * h[..., 6:]"), function(GATES), "takes", 6)
MASKED = masked_embedding("L.GRU(5, return_sequences=True)(h)")
wrong("masked gru", "tokens", module(GRU), MASKED, "masked", 5)
AVERAGED = masked_embedding("L.GlobalAveragePooling1D()(h)")
wrong("masked mean", "tokens", function("h.mean(1)"), AVERAGED, "masked")

# --- images -----------------------------------------------------------------------------------------------------------

CONV = "nn.Conv2d(12, 8, 3, 2, 1)"
right("strided", "images", module(CONV), layer("L.ZeroPadding2D(1)>>L.Conv2D(8, 3, 2)"), 8)
wrong("same", "images", module(CONV), layer('L.Conv2D(8, 3, 2, padding="same")'), "SAME pads (0, 1)", 8)
wrong("padded twice", "images", module(CONV), layer("L.ZeroPadding2D(2)>>L.Conv2D(8, 3, 2)"), "pads", 8)
SEPARATE = "nn.Sequential(nn.Conv2d(12, 12, 3, 1, 1, groups=12, bias=False), nn.Conv2d(12, 8, 1))"
right("separable", "images", module(SEPARATE), layer('L.SeparableConv2D(8, 3, padding="same")'), 8)
REFLECTED, PLAIN = 'nn.Conv2d(12, 8, 3, 1, 1, padding_mode="reflect")', 'L.Conv2D(8, 3, padding="same")'
wrong("reflected", "images", module(REFLECTED), layer(PLAIN), "torch pads with a reflection, TensorFlow with zeros", 8)
PIXELS = "O.reshape(O.transpose(O.reshape(h, (-1, 8, 8, 2, 2, 3)), (0, 1, 3, 2, 4, 5)), (-1, 16, 16, 3)) ** 2"
SHUFFLE = "F.pixel_shuffle(h.movedim(-1, 1), 2).movedim(1, -1) ** 2"
wrong("pixels", "images", function(SHUFFLE), function(PIXELS), "", 3)
DILATED = "nn.Conv2d(12, 8, 3, 1, 2, 2)"
wrong("dilation", "images", module(DILATED), layer('L.Conv2D(8, 3, padding="same")'), "dilation", 8)
right("pool", "images", module("nn.MaxPool2d(3, 2)"), layer("L.MaxPooling2D(3, 2)"))
wrong("zero pool", "images", module("nn.MaxPool2d(3, 2, 1)"), layer("L.ZeroPadding2D(1)>>L.MaxPooling2D(3, 2)"), "zero")
wrong("mean pool", "images", module("nn.MaxPool2d(2)"), layer("L.AveragePooling2D(2)"), "pools by the maximum")
COUNTED = "nn.AvgPool2d(3, 2, 1)"
wrong("counted", "images", module(COUNTED), layer('L.AveragePooling2D(3, 2, padding="same")'), "pads")
wrong(
    "global",
    "images",
    function("h.mean((1, 2))"),
    layer("L.GlobalMaxPooling2D()"),
    "by the mean, TensorFlow by the max",
)
UP = 'nn.Upsample(scale_factor=2, mode="bilinear"{})'
WAVE = ">>(lambda h: O.square(h))"
SQUARED = "nn.Sequential({}, T.nn.ReLU(), nn.Conv2d(12, 8, 3))"
KERAS_UP = 'L.UpSampling2D(2, interpolation="{}")>>L.ReLU()>>L.Conv2D(8, 3)'
right("up", "images", module(SQUARED.format(UP.format(""))), layer(KERAS_UP.format("bilinear")), 8)
wrong("nearest", "images", module(SQUARED.format(UP.format(""))), layer(KERAS_UP.format("nearest")), "nearest", 8)
ALIGNED = UP.format(", align_corners=True")
wrong("corners", "images", module(SQUARED.format(ALIGNED)), layer(KERAS_UP.format("bilinear")), "corners", 8)
TRANSPOSED = "nn.ConvTranspose2d(12, 8, 3, 2, 1, 1)"
wrong("transposed", "images", module(TRANSPOSED), layer('L.Conv2DTranspose(8, 3, 2, padding="same")'), "cuts off", 8)
right("norm", "images", module("nn.BatchNorm2d(12)"), layer("L.BatchNormalization(momentum=0.9, epsilon=1e-5)"))
wrong(
    "norm momentum",
    "images",
    module("nn.BatchNorm2d(12)"),
    layer("L.BatchNormalization(epsilon=1e-5)"),
    "momentum=0.99",
)
wrong(
    "norm epsilon",
    "images",
    module("nn.BatchNorm2d(12)"),
    layer("L.BatchNormalization(momentum=0.9)"),
    "epsilon is 1e-05",
)
NORMED = "nn.Sequential(nn.BatchNorm2d(12), nn.ReLU())"
BEFORE = "L.ReLU()>>L.BatchNormalization(momentum=0.9, epsilon=1e-5)"
wrong("relu before", "images", module(NORMED), layer(BEFORE), "TensorFlow applies relu before")
wrong(
    "instance", "images", module("nn.GroupNorm(3, 12)"), layer("L.GroupNormalization(-1, epsilon=1e-5)"), "normalises"
)
wrong("groups", "images", module("nn.GroupNorm(3, 12)"), layer("L.GroupNormalization(4, epsilon=1e-5)"), "groups")
JOINED = "O.concatenate([h[..., 4:], h[..., :4]], -1)"
wrong("joined", "images", function("T.cat([h[..., :4], h[..., 4:]], -1)"), function(JOINED), "other order")
SHUFFLED = "O.reshape(O.transpose(O.reshape(h, (-1, 8, 8, 3, 4)), (0, 1, 2, 4, 3)), (-1, 8, 8, 12))"
wrong("shuffled", "images", function("h * 1"), function(SHUFFLED), "interleaves")
wrong(
    "turned",
    "images",
    function("h.flatten(1)"),
    function("O.reshape(O.transpose(h, (0, 2, 1, 3)), (-1, 768))"),
    "interleaves",
    768,
)

# --- perceptrons ------------------------------------------------------------------------------------------------------

for name, ours, theirs in (
    ("relu", "F.relu(h)", "O.relu(h)"),
    ("elu", "F.elu(h)", "O.elu(h)"),
    ("normalised", "F.normalize(h, dim=-1)", "h / O.sqrt(O.sum(h * h, -1, keepdims=True))"),
    (
        "layers",
        "F.layer_norm(h, (12,), eps=1e-3)",
        "(h - O.mean(h, -1, keepdims=True)) / O.sqrt(O.var(h, -1, keepdims=True) + 1e-3)",
    ),
    ("scaled", "h * 0.5 + F.silu(h)", "O.silu(h) + h / 2"),
):
    right(name, "points", function(ours), function(theirs))
wrong("gelu", "points", function("F.gelu(h)"), function("K.activations.gelu(h, approximate=True)"), "GELU by tanh")
wrong(
    "leaky",
    "points",
    module("nn.LeakyReLU(0.2)"),
    layer("L.LeakyReLU()"),
    "slope 0.2, TensorFlow's leaky relu of slope 0.3",
)
wrong("alpha", "points", function("F.elu(h, 0.5)"), function("O.elu(h)"), "elu of alpha 0.5")
wrong("limited", "points", function("F.relu(h)"), function("O.clip(h, 0, 0.5)"), "relu up to 0.5")
wrong("shifted by one", "points", function("h"), function("2 * h - 1"), "2 times the output of `front`")
wrong("selu", "points", function("F.elu(h)"), function("O.selu(h)"), "selu")
wrong("mish", "points", function("F.silu(h)"), function("h * O.tanh(O.softplus(h))"), "mish")
wrong("hard", "points", function("F.sigmoid(h)"), function("O.hard_sigmoid(h)"), "hard sigmoid")
wrong("clipped", "points", function("F.relu(h)"), function("O.relu6(h * 9) / 9"), "")
wrong("squared", "points", function("F.relu(h)"), function("O.square(O.relu(h))"), "square")
wrong("minus", "points", function("h - F.silu(h)"), function("h + O.silu(h)"), "minus")
wrong(
    "rms",
    "points",
    module("nn.LayerNorm(12)"),
    layer("L.LayerNormalization(epsilon=1e-5, rms_scaling=True)"),
    "the variance alone",
)
wrong("drop", "points", module("nn.Dropout(0.1)"), layer("L.Dropout(0.9)"), "which is what torch keeps")
plain = function("F.tanh(h)"), function("O.tanh(h)")
wrong("smoothing", "points", *plain, "label smoothing", **losses({"smoothing": 0.1}, {}))
right("smoothed", "points", *plain, **losses({"smoothing": 0.1}, {"smoothing": 0.1}))
wrong("loss", "points", *plain, "is 0.5 times", **losses({}, {"factor": 0.5}))
WEIGHED = {"loss": {"torch": part(torch_weighed, weights=(1.0, 2.0, 0.5)), "tf": tf_cross}, "metric": "loss"}
wrong("class weights", "points", *plain, "classes have other weights", **WEIGHED)
FOCAL = {"loss": {"torch": part(torch_weighed, gamma=2.0), "tf": tf_cross}, "metric": "loss"}
wrong("focal", "points", *plain, "the loss is focal in torch, with a gamma of 2", **FOCAL)
PACED = {"kind": "SGD", "decay": 0.9}
right("schedule", "points", *plain, **optimizers(PACED, PACED))
wrong("no schedule", "points", *plain, "the learning rate of step 2", **optimizers(PACED, {"kind": "SGD"}))
MOVING = {**PACED, "momentum": 0.5}
wrong("convention", "points", *plain, "momentum follows them otherwise", **optimizers(MOVING, MOVING))
ROOT = {"kind": "RMSprop", "alpha": 0.9, "eps": 1e-3}, {"kind": "RMSprop", "rho": 0.9, "epsilon": 1e-3}
wrong("root", "points", *plain, "adds epsilon under the root", **optimizers(*ROOT))
right("adam", "points", *plain, accept=("epsilon",), **optimizers({}, {"epsilon": 1e-8}))
right("momentum", "points", *plain, **optimizers({"kind": "SGD", "momentum": 0.5}, {"kind": "SGD", "momentum": 0.5}))
right(
    "momentum 0.9", "points", *plain, **optimizers({"kind": "SGD", "momentum": 0.9}, {"kind": "SGD", "momentum": 0.9})
)
SGD = {"kind": "SGD", "momentum": 0.5}
wrong("nesterov", "points", *plain, "nesterov", **optimizers({**SGD, "nesterov": True}, SGD))
wrong("other momentum", "points", *plain, "momentum: 0.5 in torch", **optimizers(SGD, {**SGD, "momentum": 0.9}))
wrong("clip", "points", *plain, "clip", **optimizers(SGD, {**SGD, "clipvalue": 1e-3}))
wrong("clip norm", "points", *plain, "clip", **optimizers(SGD, {**SGD, "global_clipnorm": 1e-3}))
wrong("amsgrad", "points", *plain, "amsgrad", accept=("epsilon",), **optimizers({"amsgrad": True}, {"epsilon": 1e-8}))
wrong("beta_2", "points", *plain, "beta_2", accept=("epsilon",), **optimizers({}, {"epsilon": 1e-8, "beta_2": 0.99}))
DECAY = {"kind": "AdamW", "weight_decay": 0.125, "epsilon": 1e-8}
wrong("l2", "points", *plain, "weight decay in the gradient", **optimizers({"weight_decay": 0.125}, DECAY))
wrong("dampening", "points", *plain, "dampening", **optimizers({**SGD, "dampening": 0.5}, SGD))
PENALIZED = 'L.Dense(12, "tanh", kernel_regularizer="l2")'
wrong(
    "penalty",
    "points",
    module("nn.Sequential(nn.Linear(12, 12), nn.Tanh())"),
    layer(PENALIZED),
    "is in the loss of Keras only",
)

MODELS = {**RIGHT, **{name: made for name, (made, _) in WRONG.items()}}
globals().update({f"data_{data.__name__}": data for data in (tokens, images, points)})
globals().update({f"M_{name.replace(' ', '_')}": made for name, made in MODELS.items()})
