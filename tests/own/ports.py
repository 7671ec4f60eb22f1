"""Models in both frameworks: right ports, and ports with one defect each."""

import functools
import itertools
import math

import numpy as np

import samestep

RIGHT: dict[str, samestep.Model] = {}
"""Ports that are right."""
ROUNDED: dict[str, samestep.Model] = {}
"""Ports that are right but for constants that Keras holds in float32."""
WRONG: dict[str, tuple[samestep.Model, str, str, str]] = {}
"""Ports with a defect: the model, torch's layer or parameter, TensorFlow's, and words of the cause."""


def split(inputs, targets):
    return inputs[:96], targets[:96], inputs[96:], targets[96:]


def points():
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(120, 6)), draw.integers(0, 3, 120))


def regression():
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(120, 6))
    return split(inputs, inputs[:, :2] * inputs[:, 2:4])


def clicks():
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(120, 6)), draw.integers(0, 2, 120))


def images():
    """Channels last, as Keras takes them."""
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(120, 8, 8, 3)), draw.integers(0, 10, 120))


def odd_images():
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(120, 9, 9, 3)), draw.integers(0, 10, 120))


def signals():
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(120, 10, 3)), draw.integers(0, 4, 120))


def tokens():
    ids = np.random.default_rng(0).integers(0, 31, (120, 6))
    return split(ids, np.roll(ids, -1, axis=1))


def sentences():
    draw = np.random.default_rng(0)
    return split(draw.integers(0, 31, (120, 6)), draw.integers(0, 4, 120))


def masked_sentences():
    draw = np.random.default_rng(0)
    inputs = {"ids": draw.integers(0, 31, (120, 6)), "mask": (np.arange(6) < draw.integers(1, 7, (120, 1))) * 1.0}
    targets = draw.integers(0, 4, 120)
    return {n: v[:96] for n, v in inputs.items()}, targets[:96], {n: v[96:] for n, v in inputs.items()}, targets[96:]


def padded_sentences():
    """Targets behind the end of a text are -100, and among the inputs as well, for models that compute their own loss."""
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 31, (120, 7))
    targets = np.where(np.arange(6) < draw.integers(2, 7, (120, 1)), ids[:, 1:], -100)
    train, train_targets, test, test_targets = split(ids[:, :-1], targets)
    return {"ids": train, "labels": train_targets}, train_targets, {"ids": test, "labels": test_targets}, test_targets


DATA = {"points": points, "regression": regression, "clicks": clicks, "images": images, "odd_images": odd_images}
DATA |= {"signals": signals, "tokens": tokens, "sentences": sentences, "masked_sentences": masked_sentences}
DATA |= {"padded_sentences": padded_sentences}
WRONG_UNLESS_ACCEPTED: dict[str, samestep.Model] = {}
"""Ports whose only differences are of kinds that may be accepted."""
OF: dict[str, str] = {}
"""Model -> its data."""


def model(name, data, torch, tf, *, table=RIGHT, loss="cross_entropy", **more):
    OF[name] = data
    table[name] = samestep.Model(torch=torch, tf=tf, loss=loss, **more)


def defect(name, data, torch, tf, where, cause, **more):
    OF[name] = data
    made = samestep.Model(torch=torch, tf=tf, **{"loss": "cross_entropy", **more})
    WRONG[name] = (made, *where, cause)


# --- perceptrons ------------------------------------------------------------------------------------------------------


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


SQUARE = (6, 12, 12)
model("mlp", "points", torch_mlp, tf_mlp)
model("relu", "points", functools.partial(torch_mlp, "ReLU"), functools.partial(tf_mlp, "relu"))
model("silu", "points", functools.partial(torch_mlp, "SiLU"), functools.partial(tf_mlp, "silu"))
normed = functools.partial(torch_mlp, "Tanh", True)
model("layer_norm", "points", normed, functools.partial(tf_mlp, "tanh", 1e-5))
model("residual", "points", functional_mlp, functional_keras)
model(
    "regression",
    "regression",
    functools.partial(torch_mlp, outputs=2),
    functools.partial(tf_mlp, outputs=2),
    loss="mean_squared_error",
)
model("module", "points", module_torch, module_tf)
model("dropping", "points", dropping_torch, dropping_keras)
model("raw", "points", raw_torch, raw_keras)
model("raw_turned", "points", functools.partial(raw_torch, True), raw_keras)
gelu = functools.partial(torch_mlp, "GELU")
model("gelu", "points", gelu, functools.partial(tf_mlp, "gelu"), table=ROUNDED)
model("leaky", "points", leaky_torch, leaky_keras, table=ROUNDED)


def gelu_tanh(x):
    import keras

    return keras.activations.gelu(x, approximate=True)


gelu_by_tanh = functools.partial(torch_mlp, "GELU", approximate="tanh")
model("gelu_tanh", "points", gelu_by_tanh, functools.partial(tf_mlp, gelu_tanh), table=ROUNDED)

defect(
    "epsilon",
    "points",
    normed,
    functools.partial(tf_mlp, "tanh", 1e-3),
    ("1", "layer_normalization"),
    "torch's epsilon is 1e-05, TensorFlow's 0.001",
)
defect(
    "tanh gelu",
    "points",
    gelu,
    functools.partial(tf_mlp, gelu_tanh),
    ("1", "dense/gelu_tanh"),
    "torch computes exact GELU, TensorFlow GELU by tanh",
)
defect(
    "square",
    "points",
    functools.partial(torch_mlp, widths=SQUARE),
    turned_keras,
    ("2", "turned"),
    "the square kernel is transposed in TensorFlow",
)
defect(
    "bias",
    "points",
    torch_mlp,
    functools.partial(tf_mlp, bias=False),
    ("2", "dense_1"),
    "TensorFlow has no bias, torch has `2.bias`",
)
defect(
    "activation",
    "points",
    torch_mlp,
    functools.partial(tf_mlp, second=None),
    ("4", "dense_2"),
    "the activation (tanh) is left out in TensorFlow",
)
defect(
    "dropout",
    "points",
    dropping_torch,
    functools.partial(dropping_keras, 0.8),
    ("2", "drop"),
    "torch drops 0.2 of the elements, TensorFlow 0.8 of the elements, which is what torch keeps",
)
defect(
    "no residual",
    "points",
    functional_mlp,
    plain_keras,
    ("out", "dense_1"),
    "TensorFlow does not add the input of `second`",
)
defect(
    "probabilities",
    "points",
    torch_mlp,
    functools.partial(tf_mlp, last="softmax"),
    ("4", "dense_2"),
    "TensorFlow returns probabilities where the loss wants logits",
)


# --- images -----------------------------------------------------------------------------------------------------------


def torch_cnn(*layers):
    """A network on channels-last images."""
    from torch import nn

    class Net(nn.Sequential):
        def forward(self, x):
            return super().forward(x.movedim(-1, 1))

    return Net(*layers)


def torch_same(stride=1, bias=True, groups=1, momentum=0.1, norm=None, pool=None, flat=False):
    from torch import nn

    side = 8 // stride
    norms = {"batch": lambda: nn.BatchNorm2d(12, momentum=momentum), "group": lambda: nn.GroupNorm(3, 12)}
    first = [nn.Conv2d(3, 12, 3, stride, 1, groups=groups, bias=bias), *([norms[norm]()] if norm else []), nn.ReLU()]
    if pool:
        first.append(nn.MaxPool2d(3, 2, ceil_mode=pool == "up") if pool != "mean" else nn.AvgPool2d(2))
    rest = [nn.Conv2d(12, 4, 1), nn.Flatten(), nn.Linear(4 * side * side, 10)]
    if not flat:
        rest = [nn.Conv2d(12, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)]
    return torch_cnn(*first, *rest)


def tf_same(stride=1, groups=1, norm=None, pool=None, flat=None, padded=True, size=8, bias=True):
    import keras
    from keras import layers

    inputs = keras.Input((size, size, 3))
    if stride == 1 or not padded:
        x = layers.Conv2D(12, 3, stride, padding="same", groups=groups, use_bias=bias)(inputs)
    else:
        x = layers.Conv2D(12, 3, stride, groups=groups, use_bias=bias)(layers.ZeroPadding2D(1)(inputs))
    x = norm()(x) if norm else x
    x = layers.ReLU()(x)
    pools = {"down": lambda: layers.MaxPooling2D(3, 2), "up": lambda: layers.MaxPooling2D(3, 2, padding="same")}
    x = (pools | {"mean": lambda: layers.AveragePooling2D(2)})[pool]()(x) if pool else x
    if flat is None:
        x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 1)(x))
    else:
        x = layers.Conv2D(4, 1)(x)
        x = layers.Flatten()(layers.Permute((3, 1, 2))(x) if flat else x)
    return keras.Model(inputs, layers.Dense(10)(x))


def batch_norm(epsilon=1e-5, momentum=0.9, frozen=False):
    from keras import layers

    class Frozen(layers.BatchNormalization):
        def call(self, inputs, training=None, mask=None):
            return super().call(inputs, training=False, mask=mask)

    kind = Frozen if frozen else layers.BatchNormalization
    return kind(epsilon=epsilon, momentum=momentum, name="norm")


def group_norm():
    from keras import layers

    return layers.GroupNormalization(3, epsilon=1e-5)


def gelu_torch():
    """A normalisation between a convolution and what Keras computes with constants of float32."""
    from torch import nn

    first = [nn.Conv2d(3, 12, 3, 1, 1), nn.BatchNorm2d(12), nn.GELU()]
    return torch_cnn(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10))


def gelu_keras(epsilon=1e-5):
    import keras
    from keras import layers

    first = [layers.Conv2D(12, 3, padding="same"), batch_norm(epsilon), layers.Activation("gelu")]
    return keras.Sequential([keras.Input((8, 8, 3)), *first, layers.GlobalAveragePooling2D(), layers.Dense(10)])


def depthwise_torch():
    from torch import nn

    conv = nn.Conv2d(3, 6, 3, 1, 1, groups=3)
    return torch_cnn(conv, nn.Tanh(), nn.Conv2d(6, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def depthwise_keras():
    import keras
    from keras import layers

    conv = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, activation="tanh")
    return keras.Sequential(
        [keras.Input((8, 8, 3)), conv, layers.Conv2D(8, 1), layers.GlobalAveragePooling2D(), layers.Dense(10)]
    )


def transposed_torch():
    from torch import nn

    up = nn.ConvTranspose2d(4, 6, 2, 2)
    return torch_cnn(nn.Conv2d(3, 4, 3, 2, 1), nn.Tanh(), up, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 10))


def transposed_keras():
    import keras
    from keras import layers

    first = [layers.ZeroPadding2D(1), layers.Conv2D(4, 3, 2, activation="tanh"), layers.Conv2DTranspose(6, 2, 2)]
    return keras.Sequential([keras.Input((8, 8, 3)), *first, layers.GlobalAveragePooling2D(), layers.Dense(10)])


def signals_torch():
    from torch import nn

    class Net(nn.Sequential):
        def forward(self, x):
            return super().forward(x.swapaxes(1, 2)).mean(2)

    return Net(nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 4, 3))


def signals_keras():
    import keras
    from keras import layers

    convs = [layers.Conv1D(8, 3, padding="same", activation="relu"), layers.Conv1D(4, 3)]
    return keras.Sequential([keras.Input((10, 3)), *convs, layers.GlobalAveragePooling1D()])


def reflecting_torch():
    from torch import nn

    conv = nn.Conv2d(3, 8, 3, 1, 1, padding_mode="reflect")
    return torch_cnn(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def padding_keras():
    import keras
    from keras import layers

    conv = layers.Conv2D(8, 3, padding="same")
    return keras.Sequential([keras.Input((8, 8, 3)), conv, layers.GlobalAveragePooling2D(), layers.Dense(10)])


part = functools.partial
model("cnn", "images", torch_same, tf_same)
model("strided", "images", part(torch_same, 2), part(tf_same, 2))
model("flattened", "images", part(torch_same, flat=True), part(tf_same, flat=True))
model("pooled", "images", part(torch_same, pool="down"), part(tf_same, pool="down"))
model("batch_norm", "images", part(torch_same, norm="batch"), part(tf_same, norm=batch_norm))
model("normed_gelu", "images", gelu_torch, gelu_keras, table=ROUNDED)
model("group_norm", "images", part(torch_same, norm="group"), part(tf_same, norm=group_norm))
model("depthwise", "images", depthwise_torch, depthwise_keras)
model("transposed", "images", transposed_torch, transposed_keras)
model("signals", "signals", signals_torch, signals_keras)

defect(
    "batch epsilon",
    "images",
    part(torch_same, norm="batch"),
    part(tf_same, norm=part(batch_norm, 1e-3)),
    ("1", "norm"),
    "torch's epsilon is 1e-05, TensorFlow's 0.001",
)
defect(
    "momentum",
    "images",
    part(torch_same, norm="batch"),
    part(tf_same, norm=part(batch_norm, 1e-5, 0.99)),
    ("1", "norm"),
    "torch moves them by 0.1 (momentum=0.1), TensorFlow by 0.01 (momentum=0.99)",
)
defect(
    "statistics",
    "images",
    part(torch_same, norm="batch"),
    part(tf_same, norm=part(batch_norm, frozen=True)),
    ("1", "norm"),
    "torch normalises by the batch, TensorFlow by the running statistics",
)
defect(
    "padding",
    "images",
    part(torch_same, 2),
    part(tf_same, 2, padded=False),
    ("0", "conv2d"),
    "TensorFlow's SAME pads (0, 1), torch pads (1, 1)",
)
defect(
    "flattening",
    "images",
    part(torch_same, flat=True),
    part(tf_same, flat=False),
    ("3", "flatten"),
    "torch flattens in the order channels, height, width, TensorFlow in the order height, width, channels",
)
defect(
    "rounding",
    "images",
    part(torch_same, pool="down"),
    part(tf_same, pool="up"),
    ("2", "max_pooling2d"),
    "torch rounds the number of windows down, TensorFlow up",
)


# No cause is known, the layer is.
defect("reflected", "images", reflecting_torch, padding_keras, ("0", "conv2d"), " along the border")


# --- sequences --------------------------------------------------------------------------------------------------------


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


model("gpt", "tokens", torch_gpt, tf_gpt)
model("packed_gpt", "tokens", part(torch_gpt, packed=True), tf_gpt)
model("unpacked_gpt", "tokens", torch_gpt, part(tf_gpt, packed=True))
model("lstm", "tokens", torch_lstm, tf_lstm)
model("gru", "tokens", part(torch_lstm, "GRU", False), part(tf_lstm, "GRU"))
model("stacked", "tokens", stacked_torch, stacked_keras)
model("bidirectional", "sentences", both_ways_torch, both_ways_keras)
model("masked", "masked_sentences", masked_torch, masked_keras)
model("bag", "sentences", bag_torch, bag_keras)
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
defect(
    "reset",
    "tokens",
    part(torch_lstm, "GRU", False),
    part(tf_lstm, "GRU", reset_after=False),
    ("rnn", "gru"),
    "torch's reset gate comes after the product with the state, TensorFlow's before it",
)


# --- losses and updates -----------------------------------------------------------------------------------------------


def torch_loss(outputs, targets):
    from torch.nn import functional

    return functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")


def tf_loss(outputs, targets):
    import tensorflow as tf

    return 6 * tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)


def penalized_keras(weight=None, activity=None, added=0.0):
    """A perceptron that adds to its loss."""
    import keras
    from keras import layers, regularizers

    class Adds(layers.Layer):
        def call(self, x):
            self.add_loss(added * keras.ops.mean(keras.ops.square(x)))
            return x

    net = keras.Sequential([keras.Input((6,))])
    net.add(layers.Dense(16, "tanh", kernel_regularizer=regularizers.L2(weight) if weight else None))
    net.add(
        layers.Dense(12, "tanh", activity_regularizer=regularizers.L1(activity) if activity else None, name="second")
    )
    if added:
        net.add(Adds(name="adds"))
    net.add(layers.Dense(3))
    return net


def torch_sgd(parameters):
    import torch

    return torch.optim.SGD(parameters, 2**-6, momentum=0.5)


def tf_sgd():
    import keras

    return keras.optimizers.SGD(2**-6, momentum=0.5)


def torch_adam(parameters):
    import torch

    return torch.optim.Adam(parameters, 1e-3)


def tf_adam(**settings):
    import keras

    return keras.optimizers.Adam(1e-3, **settings)


def torch_decay(parameters):
    """Only what has two dims decays."""
    import torch

    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.125},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, 2**-6)


def tf_decay():
    import keras

    return keras.optimizers.SGD(2**-6, weight_decay=0.125)


model(
    "accepting",
    "tokens",
    part(torch_lstm, frozen=False),
    tf_lstm,
    table=WRONG_UNLESS_ACCEPTED,
    optimizer={"torch": torch_adam, "tf": tf_adam},
    accept=("double_bias",),
)
model("sgd", "points", torch_mlp, tf_mlp, optimizer={"torch": torch_sgd, "tf": tf_sgd})
defect(
    "mean",
    "tokens",
    torch_gpt,
    tf_gpt,
    ("", ""),
    "torch takes the mean over all targets, TensorFlow over the batch: 6 times",
    loss={"torch": torch_loss, "tf": tf_loss},
    metric="loss",
)
defect(
    "betas",
    "points",
    torch_mlp,
    tf_mlp,
    ("0", "dense"),
    "beta_2: 0.999 in torch, 0.99 in TensorFlow; amsgrad: off in torch, on in TensorFlow",
    optimizer={"torch": torch_adam, "tf": part(tf_adam, epsilon=1e-8, beta_2=0.99, amsgrad=True)},
)
defect(
    "regularizer",
    "points",
    torch_mlp,
    part(penalized_keras, 0.5),
    ("", ""),
    "L2 of 0.5 on `dense/kernel` is in the loss of Keras only",
)
defect(
    "activity",
    "points",
    torch_mlp,
    part(penalized_keras, activity=0.25, added=0.5),
    ("", ""),
    "L1 of 0.25 on the outputs of `second` and what `adds` adds are in the loss of Keras only",
)
defect(
    "adam",
    "points",
    torch_mlp,
    tf_mlp,
    ("0", "dense"),
    "epsilon: 1e-08 in torch, 1e-07 in TensorFlow; Adam's epsilon acts as 1e-08 in torch and as 3.2e-06 in TensorFlow",
    optimizer={"torch": torch_adam, "tf": tf_adam},
)
defect(
    "decay",
    "points",
    torch_mlp,
    tf_mlp,
    ("0", "dense"),
    "weight decay on biases",
    optimizer={"torch": torch_decay, "tf": tf_decay},
)


# --- losses -----------------------------------------------------------------------------------------------------------


def torch_labelled(own_loss=True):
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.hidden, self.out = nn.Embedding(31, 8), nn.Linear(8, 16), nn.Linear(16, 31)

        def forward(self, ids, labels):
            logits = self.out(self.hidden(self.table(ids)).tanh())
            if not own_loss:
                return logits
            return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits

    return Net()


def tf_labelled(own_loss=True):
    import keras
    import tensorflow as tf
    from keras import layers

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.table, self.hidden, self.out = layers.Embedding(31, 8), layers.Dense(16, "tanh"), layers.Dense(31)

        def call(self, batch):
            logits, labels = self.out(self.hidden(self.table(batch["ids"]))), batch["labels"]
            if not own_loss:
                return logits
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
            counts = tf.cast(labels >= 0, logits.dtype)
            return tf.reduce_sum(losses * counts) / tf.reduce_sum(counts), logits

    return Net()


def counted(targets):
    return (targets >= 0).sum()


model("returned", "padded_sentences", torch_labelled, tf_labelled, loss="returned", reduction=counted)
model("ignored", "padded_sentences", part(torch_labelled, False), part(tf_labelled, False))

MODELS = {**RIGHT, **ROUNDED, **WRONG_UNLESS_ACCEPTED, **{name: made for name, (made, *_) in WRONG.items()}}
globals().update({f"data_{name}": make for name, make in DATA.items()})
globals().update({f"M_{name.replace(' ', '_')}": made for name, made in MODELS.items()})
