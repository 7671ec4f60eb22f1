"""Small ports of what runs along a sequence: recurrent layers, convolutions, gates, and what pools or reorders positions."""

import functools

from tests.own.small_ports.pieces import WIDTH, SmallPorts, function, layer, module, part
from tests.own.small_ports.training import optimizers

PORTS = SmallPorts()
right, wrong = PORTS.right, PORTS.wrong


def torch_last(torch, take=lambda made: made[0][:, -1], kind="LSTM", **settings):
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = getattr(torch.nn, kind)(WIDTH, 5, batch_first=True, **settings)

        def forward(self, h):
            return take(self.inner(h))

    return Last()


def torch_causal(torch):
    class Causal(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Conv1d(WIDTH, 8, 3, padding=2)

        def forward(self, h):
            return self.inner(h.transpose(1, 2))[..., :-2].transpose(1, 2)

    return Causal()


def masked_embedding(text):
    return functools.partial(_masked_embedding, text=text)


def _masked_embedding(keras, text):
    def run(h):
        return eval(text, {"L": keras.layers, "h": h})

    run.front = lambda: keras.layers.Embedding(20, WIDTH, mask_zero=True, name="front")
    return run


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
MEMORY = part(torch_last, take=lambda made: made[1][1][-1])
wrong("cell state", "tokens", MEMORY, layer("L.LSTM(5)"), "torch takes the last cell state of `piece.inner`", 5)
CELL = layer("L.LSTM(5, return_state=True)>>(lambda made: made[2])")
right("both cell states", "tokens", MEMORY, CELL, 5, accept=("double_bias",))
wrong("cell state of keras", "tokens", torch_last, CELL, "TensorFlow takes the last cell state of `piece.inner`", 5)
BOTH_WAYS = "L.Bidirectional(L.LSTM(5))>>(lambda made: made[:, :5])"
BACK = part(torch_last, take=lambda made: made[1][0][-1], bidirectional=True)
wrong("end of what goes back", "tokens", BACK, layer(BOTH_WAYS), "torch takes the last state backward of", 5)
HARD = 'L.LSTM(5, recurrent_activation="hard_sigmoid")'
wrong("last of hard lstm", "tokens", torch_last, layer(HARD), "hard", 5)
right("causal convolution", "tokens", torch_causal, layer('L.Conv1D(8, 3, padding="causal")'), 8)
GATES = "O.silu(h[..., 6:]) * h[..., :6]"
wrong("other gate", "tokens", function("F.silu(h[..., :6]) * h[..., 6:]"), function(GATES), "takes", 6)
MASKED = masked_embedding("L.GRU(5, return_sequences=True)(h)")
wrong("masked gru", "tokens", module(GRU), MASKED, "masked", 5)
AVERAGED = masked_embedding("L.GlobalAveragePooling1D()(h)")
wrong("masked mean", "tokens", function("h.mean(1)"), AVERAGED, "masked")
WAYS = "nn.LSTM(12, 5, batch_first=True, bidirectional=True)"
KERAS_WAYS = "L.Bidirectional(L.LSTM(5, return_sequences=True))"
right("both ways", "tokens", module(WAYS), layer(KERAS_WAYS), 10, accept=("double_bias",))
TURNED = "L.Bidirectional(L.GRU(5, return_sequences=True))>>(lambda m: O.concatenate([m[..., 5:], m[..., :5]], -1))"
BOTH = "nn.GRU(12, 5, batch_first=True, bidirectional=True)"
ENDS = part(torch_last, take=lambda made: made[1].transpose(0, 1).flatten(1), kind="GRU", bidirectional=True)
RESET_BEFORE = "L.Bidirectional(L.GRU(5{}))"
right("ends of both ways", "tokens", ENDS, layer(RESET_BEFORE.format("")), 10)
wrong("reset of both ways", "tokens", ENDS, layer(RESET_BEFORE.format(", reset_after=False")), "reset gate comes", 10)
wrong("backward first", "tokens", module(BOTH), layer(TURNED), "the last 5 before the first 5", 10)
MERGED = "L.Bidirectional(L.LSTM(5, return_sequences=True), merge_mode={!r})"
ADDED = part(torch_last, take=lambda made: made[0][..., :5] + made[0][..., 5:], bidirectional=True)
MEAN = part(torch_last, take=lambda made: (made[0][..., :5] + made[0][..., 5:]) / 2, bidirectional=True)
LAST_ADDED = part(torch_last, take=lambda made: made[1][0].sum(0), bidirectional=True)
LAST_MERGED = 'L.Bidirectional(L.LSTM(5), merge_mode="sum")'
right("ways added", "tokens", ADDED, layer(MERGED.format("sum")), 5, accept=("double_bias",))
right("ways averaged", "tokens", MEAN, layer(MERGED.format("ave")), 5, accept=("double_bias",))
right("last of ways added", "tokens", LAST_ADDED, layer(LAST_MERGED), 5, accept=("double_bias",))
wrong("averaged for added", "tokens", ADDED, layer(MERGED.format("ave")), "averaged", 5)
wrong("multiplied for added", "tokens", ADDED, layer(MERGED.format("mul")), "multiplied", 5)

globals().update(PORTS.in_file())
