"""Models as users bring them, in torch."""

import numpy as np

import samestep


def arrays(inputs: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    names = ("train_inputs", "train_targets", "test_inputs", "test_targets")
    return dict(zip(names, (inputs[:96], targets[:96], inputs[96:], targets[96:]), strict=True))


def images() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return arrays(draw.normal(size=(120, 1, 8, 8)), draw.integers(0, 10, 120))


def tokens() -> dict[str, np.ndarray]:
    ids = np.random.default_rng(0).integers(0, 31, (120, 12))
    return arrays(ids, np.roll(ids, -1, axis=1))


def points() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(120, 6))
    return arrays(inputs, inputs[:, :2] * inputs[:, 2:4])


def sentences() -> dict[str, object]:
    """Ids and their mask, as two arrays of inputs."""
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 31, (120, 12))
    inputs = {"ids": ids, "mask": (np.arange(12) < draw.integers(3, 13, (120, 1))).astype(float)}
    found = arrays(ids, (ids[:, 0] > ids[:, 1]).astype(int))
    for part, rows in (("train", slice(96)), ("test", slice(96, None))):
        found[f"{part}_inputs"] = {name: array[rows] for name, array in inputs.items()}
    return found


def resnet():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            self.short = nn.Conv2d(channels, outputs, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x):
            y = torch.relu(self.norm1(self.conv1(x)))
            return torch.relu(self.norm2(self.conv2(y)) + self.short(x))

    stem = (nn.Conv2d(1, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*stem, Block(4, 4, 1), Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def gpt():
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype, device=x.device)
            y = self.norm1(x)
            x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(31, 16), nn.Embedding(12, 16)
            self.blocks = nn.ModuleList(Layer(16) for _ in range(3))
            self.norm = nn.LayerNorm(16)
            self.head = nn.Linear(16, 31, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            return {"logits": self.head(self.norm(x))}

    return GPT()


def gpt_segments(model):
    import torch

    def embed(ids):
        return model.tokens(ids) + model.positions(torch.arange(ids.shape[1], device=ids.device))

    blocks = {f"blocks.{number}": block for number, block in enumerate(model.blocks)}
    return {"tokens+positions": embed, **blocks, "norm+head": lambda x: model.head(model.norm(x))}


def untied_gpt():
    from torch import nn

    model = gpt()
    model.head = nn.Linear(16, 31, bias=False)
    return model


def lstm():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.lstm = nn.Embedding(31, 8), nn.LSTM(8, 16, batch_first=True)
            self.out = nn.Linear(16, 31)

        def forward(self, ids):
            return self.out(self.lstm(self.table(ids))[0])

    return Net()


def masked():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.hidden, self.out = nn.Embedding(31, 8), nn.Linear(8, 16), nn.Linear(16, 2)

        def forward(self, ids, mask):
            mean = (self.table(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            return self.out(torch.tanh(self.hidden(mean)))

    return Net()


def masked_segments(model):
    def embed(ids, mask):
        return (model.table(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    return {"table": embed, "hidden": lambda x: model.hidden(x).tanh(), "out": model.out}


def regression():
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))


def dropout():
    from torch import nn

    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 2))


def functional_dropout():
    import torch
    from torch import nn
    from torch.nn.functional import dropout

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = nn.Linear(6, 16), nn.Linear(16, 2)

        def forward(self, x):
            x = dropout(self.hidden(x), 0.2, self.training)[:, None]
            attended = nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1 * self.training)
            return self.out(torch.tanh(attended[:, 0]))

    return Net()


def huber(outputs, targets):
    from torch.nn import functional

    return functional.huber_loss(outputs, targets, reduction="none")


def adam(params):
    import torch

    return torch.optim.Adam(params, 2**-8, betas=(0.8, 0.99), amsgrad=True)


def factored(params):
    import torch

    return torch.optim.Adafactor(params, 2**-8)


def within_one(outputs: np.ndarray, targets: np.ndarray) -> float:
    return float((np.abs(outputs - targets) < 1).mean())


RESNET = samestep.Model(torch=resnet)
GPT = samestep.Model(torch=gpt)
SPLIT_GPT = samestep.Model(
    torch=untied_gpt,
    segments={"torch": gpt_segments},
    tensor_plan={"blocks.*.up": "column", "blocks.*.down": "row"},
)
TIED_GPT = samestep.Model(torch=gpt, segments={"torch": gpt_segments})
LSTM = samestep.Model(torch=lstm)
REGRESSION = samestep.Model(torch=regression, loss="mean_squared_error")
HUBER = samestep.Model(torch=regression, loss={"torch": huber})
WITHIN = samestep.Model(torch=regression, loss="mean_squared_error", metric=within_one)
DROPOUT = samestep.Model(torch=dropout, loss="mean_squared_error")
MASKED = samestep.Model(
    torch=masked, segments={"torch": masked_segments}, tensor_plan={"hidden": "column", "out": "row"}
)
ADAM = samestep.Model(torch=regression, loss="mean_squared_error", optimizer={"torch": adam})
FACTORED = samestep.Model(torch=regression, loss="mean_squared_error", optimizer={"torch": factored})
KERAS_OPTIMIZER = samestep.Model(torch=regression, loss="mean_squared_error", optimizer={"tf": lambda: None})
FUNCTIONAL_DROPOUT = samestep.Model(torch=functional_dropout, loss="mean_squared_error")
