"""The tables of whole ports, which the files beside this one fill, and the data that they are tried on."""

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


def labelled_pixels():
    """A class for each pixel."""
    draw = np.random.default_rng(0)
    return split(draw.normal(size=(120, 8, 8, 3)), draw.integers(0, 4, (120, 8, 8)))


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
DATA |= {"padded_sentences": padded_sentences, "labelled_pixels": labelled_pixels}
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
