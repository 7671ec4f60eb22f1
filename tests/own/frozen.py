"""Models of which a part is frozen, in both frameworks."""

from pathlib import Path

import numpy as np

import samestep

NUM_BLOCKS = 4
FROZEN = {
    "NOTHING": (),
    "BACKBONE": ("first", "blocks"),
    "FRONT": ("first", "blocks.0", "blocks.1"),
    "MIDDLE": ("blocks.1", "blocks.2"),
    "UPS": ("first", *(f"blocks.{number}.up" for number in range(NUM_BLOCKS))),
}


def stack(frozen: tuple[str, ...]) -> samestep.Model:
    """A stack of residual blocks; those modules are frozen that are named."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.down(self.up(x).tanh())

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(10, 12), nn.Linear(12, 2)
            self.blocks = nn.ModuleList([Block(12) for _ in range(NUM_BLOCKS)])

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    def build() -> nn.Module:
        model = Stack()
        for path in frozen:
            model.get_submodule(path).requires_grad_(False)
        return model

    def segments(model) -> dict[str, object]:
        return {"first": model.first, **{f"blocks.{i}": b for i, b in enumerate(model.blocks)}, "head": model.head}

    plan = {"blocks.*.up": "column", "blocks.*.down": "row"}
    return samestep.Model(torch=build, segments={"torch": segments}, tensor_plan=plan)


def __getattr__(name: str) -> samestep.Model:
    if name in FROZEN:
        return stack(FROZEN[name])
    raise AttributeError(name)


def build_lora():
    import torch
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.base = nn.Linear(inputs, outputs).requires_grad_(False)
            self.low, self.high = nn.Parameter(torch.randn(2, inputs) * 0.1), nn.Parameter(torch.zeros(outputs, 2))

        def forward(self, x):
            return self.base(x) + x @ self.low.T @ self.high.T

    return nn.Sequential(Adapted(10, 16), nn.Tanh(), Adapted(16, 16), nn.Tanh(), nn.Linear(16, 2))


LORA = samestep.Model(torch=build_lora)


def build_all_frozen():
    from torch import nn

    return nn.Linear(10, 2).requires_grad_(False)


ALL = samestep.Model(torch=build_all_frozen)


def build_torch():
    from collections import OrderedDict

    from torch import nn

    layers = OrderedDict(a=nn.Linear(10, 16), t=nn.Tanh(), b=nn.Linear(16, 16), u=nn.Tanh(), c=nn.Linear(16, 2))
    layers["b"].requires_grad_(False)
    return nn.Sequential(layers)


def build_keras():
    import keras
    from keras.layers import Dense

    layers = [Dense(16, activation="tanh", name="a"), Dense(16, activation="tanh", name="b"), Dense(2, name="c")]
    model = keras.Sequential([keras.Input((10,)), *layers])
    model.get_layer("b").trainable = False
    return model


def build_mostly_frozen():
    import keras
    from keras.layers import Dense

    layers = [Dense(16, activation="tanh", trainable=place == 0) for place in range(4)]
    return keras.Sequential([keras.Input((10,)), *layers, Dense(2)])


MOSTLY_FROZEN = samestep.Model(tf=build_mostly_frozen)
BOTH = samestep.Model(torch=build_torch, tf=build_keras)
KERAS = samestep.Model(tf=build_keras)


def build_patches():
    """A layer that reads 16 patches and a class token of an image, where the target is one class."""
    import torch
    from torch import nn

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.token = nn.Linear(4, 12), nn.Parameter(torch.zeros(1, 1, 12))
            self.up, self.down, self.head = nn.Linear(12, 24), nn.Linear(24, 12), nn.Linear(12, 10)

        def forward(self, x):
            x = self.embed(x.reshape(len(x), 16, 4))
            x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
            for _ in range(2):
                x = x + self.down(self.up(x).tanh())
            return self.head(x[:, 0])

    return Patches()


PATCHES = samestep.Model(torch=build_patches, tensor_plan={"up": "column", "down": "row"})


def rows() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    return _arrays(draw.normal(size=(144, 10)), lambda x: (x[:, 0] > 0).astype(int))


def images() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    return _arrays(draw.normal(size=(144, 8, 8)), lambda x: (x[:, 0, 0] > 0).astype(int))


def _arrays(inputs: np.ndarray, label) -> dict[str, np.ndarray]:
    targets = label(inputs)
    names = ("train_inputs", "train_targets", "test_inputs", "test_targets")
    return dict(zip(names, (inputs[:96], targets[:96], inputs[96:], targets[96:]), strict=True))


def asked(model: str, data: str = "rows", **fields: object) -> dict[str, object]:
    """The fields of a request that trains one of these models."""
    given = {"model": f"{Path(__file__)}:{model}", "data": f"{Path(__file__)}:{data}"}
    return given | {"dtype": "float64", "optimizer": "adamw", "steps": 5} | fields
