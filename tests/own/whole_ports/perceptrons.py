"""Ports of perceptrons."""

import functools

from tests.own.whole_ports.perceptron_models import (
    dropping_keras,
    dropping_torch,
    functional_keras,
    functional_mlp,
    gelu_tanh,
    leaky_keras,
    leaky_torch,
    module_tf,
    module_torch,
    plain_keras,
    raw_keras,
    raw_torch,
    tf_mlp,
    torch_mlp,
    turned_keras,
)
from tests.own.whole_ports.tables import ROUNDED, defect, model

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
