"""Small ports of functions between layers, and of layers of a perceptron."""

from tests.own.small_ports.pieces import SmallPorts, function, layer, module

PORTS = SmallPorts()
right, wrong = PORTS.right, PORTS.wrong


def torch_temperature(torch):
    class Temperature(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.logit = torch.nn.Parameter(torch.tensor(0.5))

        def forward(self, h):
            return h * self.logit.exp()

    return Temperature()


def tf_temperature(keras):
    class Temperature(keras.layers.Layer):
        def build(self, shape):
            self.logit = self.add_weight(shape=(), initializer="ones", name="logit")

        def call(self, h):
            return h * keras.ops.exp(self.logit)

    return Temperature()


def torch_sampled(torch):
    class Sampled(torch.nn.Module):
        takes_ids = True

        def __init__(self):
            super().__init__()
            self.item = torch.nn.Embedding(20, 12)

        def forward(self, h, ids):
            bought = (h[:, 0] * self.item(ids[:, 1])).sum(-1)
            others = (h[:, :1] * self.item(ids[:, 2:])).sum(-1)
            return (
                h[:, 1]
                * (torch.nn.functional.logsigmoid(bought) + torch.nn.functional.logsigmoid(-others).sum(-1))[:, None]
            )

    return Sampled()


def tf_sampled(keras, sign=-1.0):
    item, ops = keras.layers.Embedding(20, 12, name="item"), keras.ops

    def run(h, ids):
        others = ops.sum(h[:, :1] * item(ids[:, 2:]), -1)  # the other one first
        bought = ops.sum(h[:, 0] * item(ids[:, 1]), -1)
        return h[:, 1] * (ops.log_sigmoid(bought) + ops.sum(ops.log_sigmoid(sign * others), -1))[:, None]

    run.takes_ids = True
    return run


right("negative samples", "tokens", torch_sampled, tf_sampled)
right("temperature", "points", torch_temperature, tf_temperature)
for name, ours, theirs in (
    ("relu", "F.relu(h)", "O.relu(h)"),
    ("elu", "F.elu(h)", "O.elu(h)"),
    ("normalized", "F.normalize(h, dim=-1)", "h / O.sqrt(O.sum(h * h, -1, keepdims=True))"),
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
GATED = "O.split(h, 2, -1)[{}] * O.{}(O.split(h, 2, -1)[{}])"
wrong(
    "gate", "points", function("F.glu(h)"), function(GATED.format(1, "sigmoid", 0)), "times the sigmoid of the first", 6
)
wrong(
    "silu gate", "points", function("F.glu(h)"), function(GATED.format(0, "silu", 1)), "times the silu of the second", 6
)

globals().update(PORTS.in_file())
