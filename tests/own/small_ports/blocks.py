"""Small ports of blocks that papers are made of, and of layers whose parameters Keras shapes otherwise."""

from tests.own.small_ports.pieces import WIDTH, SmallPorts, layer, module, part

PORTS = SmallPorts()
right, wrong = PORTS.right, PORTS.wrong


def torch_convnext(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.depthwise = nn.Conv2d(WIDTH, WIDTH, 5, padding=2, groups=WIDTH)
            self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
            self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, h):
            y = self.norm(self.depthwise(h.movedim(-1, 1)).movedim(1, -1))
            return h + self.down(nn.functional.gelu(self.up(y)))

    return Block()


def tf_convnext(keras, epsilon=1e-6):
    layers = keras.layers
    depthwise = layers.DepthwiseConv2D(5, padding="same", name="depthwise")
    norm = layers.LayerNormalization(epsilon=epsilon, name="norm")
    up, down = layers.Dense(2 * WIDTH, activation="gelu", name="up"), layers.Dense(WIDTH, name="down")
    return lambda h: h + down(up(norm(depthwise(h))))


def torch_squeeze(torch):
    nn = torch.nn

    class Squeeze(nn.Module):
        def __init__(self):
            super().__init__()
            self.less, self.more = nn.Conv2d(WIDTH, 4, 1), nn.Conv2d(4, WIDTH, 1)

        def forward(self, h):
            x = h.movedim(-1, 1)
            gate = self.more(self.less(nn.functional.adaptive_avg_pool2d(x, 1)).relu()).sigmoid()
            return (x * gate).movedim(1, -1)

    return Squeeze()


def tf_squeeze(keras, pool="GlobalAveragePooling2D", gate="sigmoid"):
    layers = keras.layers
    less, more = layers.Dense(4, activation="relu", name="less"), layers.Dense(WIDTH, activation=gate, name="more")
    return lambda h: h * layers.Reshape((1, 1, WIDTH))(more(less(getattr(layers, pool)()(h))))


def torch_wavenet(torch):
    nn = torch.nn

    class WaveNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.filter, self.gate = (nn.Conv1d(WIDTH, WIDTH, 2, dilation=2) for _ in range(2))
            self.skip = nn.Conv1d(WIDTH, WIDTH, 1)

        def forward(self, h):
            x = h.transpose(1, 2)
            y = nn.functional.pad(x, (2, 0))
            return (self.skip(self.filter(y).tanh() * self.gate(y).sigmoid()) + x).transpose(1, 2)

    return WaveNet()


def tf_wavenet(keras, padding="causal", dilation=2):
    layers, ops = keras.layers, keras.ops
    settings = {"dilation_rate": dilation, "padding": padding}
    filtered, gate = (layers.Conv1D(WIDTH, 2, **settings, name=name) for name in ("filter", "gate"))
    skip = layers.Conv1D(WIDTH, 1, name="skip")
    return lambda h: skip(ops.tanh(filtered(h)) * ops.sigmoid(gate(h))) + h


def torch_cross(torch):
    nn = torch.nn

    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = nn.Linear(WIDTH, 8)
            self.inner = nn.MultiheadAttention(WIDTH, 3, kdim=8, vdim=8, batch_first=True)

        def forward(self, h):
            m = self.memory(h).tanh()
            return h + self.inner(h, m, m, need_weights=False)[0]

    return Cross()


def tf_cross(keras, heads=3, is_residual=True):
    layers = keras.layers
    memory = layers.Dense(8, activation="tanh", name="memory")
    inner = layers.MultiHeadAttention(heads, WIDTH // heads, name="inner")

    def run(h):
        made = inner(h, memory(h))
        return h + made if is_residual else made

    return run


def torch_capsule(torch):
    class Capsule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.votes = torch.nn.Parameter(torch.randn(4, 3, 3, 4))  # capsules in, capsules out, width in, width out

        def forward(self, h):
            u = torch.einsum("bid,ijde->bije", h.unflatten(-1, (4, 3)), self.votes)
            c = torch.zeros(len(h), 4, 3, dtype=h.dtype)
            for _ in range(2):
                s = (c.softmax(2)[..., None] * u).sum(1)
                n = s.square().sum(-1, keepdim=True)
                v = n / (1 + n) * s / (n + 1e-8).sqrt()
                c = c + (u * v[:, None]).sum(-1)
            return v.flatten(1)

    return Capsule()


def tf_capsule(keras, axis=2, squash=1.0):
    ops = keras.ops

    class Capsule(keras.layers.Layer):
        def build(self, shape):
            self.votes = self.add_weight(shape=(4, 3, 3, 4), name="votes")

        def call(self, h):
            u = ops.einsum("bid,ijde->bije", ops.reshape(h, (-1, 4, 3)), self.votes)
            c = ops.zeros_like(u[..., 0])
            for _ in range(2):
                s = ops.sum(ops.softmax(c, axis)[..., None] * u, 1)
                n = ops.sum(ops.square(s), -1, keepdims=True)
                v = n / (squash + n) * s / ops.sqrt(n + 1e-8)
                c = c + ops.sum(u * v[:, None], -1)
            return ops.reshape(v, (-1, 12))

    return Capsule(name="capsule")


right("convnext", "images", torch_convnext, tf_convnext)
wrong(
    "convnext epsilon", "images", torch_convnext, part(tf_convnext, epsilon=1e-3), "epsilon is 1e-06, TensorFlow's 0.00"
)
right("squeeze", "images", torch_squeeze, tf_squeeze)
HARD_GATE = part(tf_squeeze, gate="hard_sigmoid")
wrong(
    "squeeze by maximum",
    "images",
    torch_squeeze,
    part(tf_squeeze, pool="GlobalMaxPooling2D"),
    "by the mean, TensorFlow by the max",
)
wrong("squeeze gate", "images", torch_squeeze, HARD_GATE, "hard sigmoid")
right("wavenet", "tokens", torch_wavenet, tf_wavenet)
wrong(
    "wavenet same",
    "tokens",
    torch_wavenet,
    part(tf_wavenet, padding="same"),
    "TensorFlow pads (1, 1), torch pads (2, 0)",
)
wrong(
    "wavenet dilation", "tokens", torch_wavenet, part(tf_wavenet, dilation=1), "torch's dilation is (2,), TensorFlow's"
)
right("cross", "tokens", torch_cross, tf_cross)
wrong("cross residual", "tokens", torch_cross, part(tf_cross, is_residual=False), "TensorFlow does not")
wrong("cross heads", "tokens", torch_cross, part(tf_cross, heads=6), "")
right("capsule", "points", torch_capsule, tf_capsule)
wrong("capsule axis", "points", torch_capsule, part(tf_capsule, axis=1), "TensorFlow 0.25 times")
wrong("capsule squash", "points", torch_capsule, part(tf_capsule, squash=0.5), "torch adds 1, TensorFlow 0.5")
right(
    "norm of two axes", "tokens", module("nn.LayerNorm((6, 12))"), layer("L.LayerNormalization((1, 2), epsilon=1e-5)")
)
right("prelu", "images", module("nn.PReLU(12)"), layer("L.PReLU(shared_axes=[1, 2])"))
UNEVEN = 'L.Conv2DTranspose(8, 3, 2, padding="same")'
wrong(
    "uneven transposed", "images", module("nn.ConvTranspose2d(12, 8, 3, 2)"), layer(UNEVEN), "torch keeps 17 and 17", 8
)


def torch_bilinear(torch):
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.both = torch.nn.Bilinear(WIDTH, 6, WIDTH)

        def forward(self, h):
            return self.both(h, h[..., :6].tanh())

    return Both()


def tf_bilinear(keras):
    class Both(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(WIDTH, 6, WIDTH), name="kernel")
            self.bias = self.add_weight(shape=(WIDTH,), name="bias")

        def call(self, h):
            return keras.ops.einsum("bi,ijo,bj->bo", h, self.kernel, keras.ops.tanh(h[..., :6])) + self.bias

    return Both(name="both")


def tf_products(keras):
    both, ops = keras.layers.Dense(WIDTH, name="both"), keras.ops
    return lambda h: both(ops.reshape(h[..., :, None] * ops.tanh(h[..., None, :6]), (-1, 6 * WIDTH)))


right("bilinear", "points", torch_bilinear, tf_bilinear)
right("bilinear products", "points", torch_bilinear, tf_products)

globals().update(PORTS.in_file())
