"""A piece of a model in both frameworks stands between a front and a head that are right.

A torch piece is made by a function of `torch`, a Keras piece by one of `keras`; either returns what is called with the hidden
activations, channels last on both sides.
"""

import functools
from collections.abc import Callable

import numpy as np

import samestep

Piece = Callable
WIDTH, TIME, SIDE = 12, 6, 8
part = functools.partial


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


plain = function("F.tanh(h)"), function("O.tanh(h)")
"""Pieces of ports of which something else than the forward pass is looked at."""


class SmallPorts:
    """The ports of one file: right ones, and wrong ones with words of their cause, or none where no cause is known."""

    def __init__(self):
        self.are_right: dict[str, samestep.Model] = {}
        self.are_wrong: dict[str, tuple[samestep.Model, str]] = {}
        self.data: dict[str, str] = {}

    def right(self, name, data, torch, tf, width=WIDTH, **more):
        assert name not in self.data, name
        self.data[name], self.are_right[name] = data, _model(data, torch, tf, width, **more)

    def wrong(self, name, data, torch, tf, cause, width=WIDTH, **more):
        assert name not in self.data, name
        self.data[name], self.are_wrong[name] = data, (_model(data, torch, tf, width, **more), cause)

    @property
    def models(self):
        return {**self.are_right, **{name: made for name, (made, _) in self.are_wrong.items()}}

    def in_file(self):
        """What the file has by name: the models, and their data."""
        named = {f"M_{name.replace(' ', '_')}": made for name, made in self.models.items()}
        return named | {f"data_{data.__name__}": data for data in (tokens, images, points)}


def _model(data, torch, tf, width, **more):
    return samestep.Model(torch=part(torch_net, data, torch, width), tf=part(tf_net, data, tf, width), **more)
