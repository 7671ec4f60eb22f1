"""Ports of networks on images and signals, channels last on both sides."""

import functools

from tests.own.whole_ports.tables import ROUNDED, defect, model

part = functools.partial


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


def torch_norm_of_all():
    """A norm over as many channels as rows and columns."""
    from torch import nn

    norm = nn.LayerNorm((8, 8, 8), eps=1e-3)
    return torch_cnn(
        nn.Conv2d(3, 8, 3, padding=1), norm, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )


def tf_norm_of_all():
    from keras import Sequential, layers

    norm = layers.LayerNormalization(axis=(1, 2, 3))
    rest = layers.Activation("tanh"), layers.GlobalAveragePooling2D(), layers.Dense(10)
    return Sequential([layers.Conv2D(8, 3, padding="same"), norm, *rest])


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
    """A normalization between a convolution and what Keras computes with constants of float32."""
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


def segmenting_torch():
    """Its classes are the second axis of what it returns, as torch's own loss takes them."""
    from torch import nn

    class Net(nn.Sequential):
        def forward(self, x):
            return super().forward(x.movedim(-1, 1))

    return Net(nn.Conv2d(3, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, 4, 1))


def segmenting_keras():
    import keras
    from keras import layers

    inner = layers.Conv2D(6, 3, padding="same", activation="tanh")
    return keras.Sequential([keras.Input((8, 8, 3)), inner, layers.Conv2D(4, 1)])


model("segmentation", "labelled_pixels", segmenting_torch, segmenting_keras)
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
    "torch normalizes by the batch, TensorFlow by the running statistics",
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
model("norm_turned", "images", torch_norm_of_all, tf_norm_of_all)
