"""Small ports that train otherwise: losses, optimizers and their schedules, and what clips gradients."""

from tests.own.small_ports.pieces import SmallPorts, layer, module, part, plain

PORTS = SmallPorts()
right, wrong = PORTS.right, PORTS.wrong


def torch_cross(o, y, smoothing=0.0):
    from torch.nn import functional

    return functional.cross_entropy(o, y, reduction="none", label_smoothing=smoothing)


def tf_cross(o, y, smoothing=0.0, factor=1.0):
    import keras
    import tensorflow as tf

    hot = tf.one_hot(y, 3, dtype=o.dtype)
    return factor * keras.losses.categorical_crossentropy(hot, o, from_logits=True, label_smoothing=smoothing)


def torch_weighed(o, y, weights=(1.0, 1.0, 1.0), gamma=0.0):
    import torch

    each = torch_cross(o, y)
    return each * torch.tensor(weights, dtype=o.dtype)[y] * (1 - torch.exp(-each)) ** gamma


def torch_update(p, kind="Adam", decay=1.0, norm=0.0, value=0.0, each=0.0, **settings):
    import torch

    made = getattr(torch.optim, kind)(p, 2**-7, **settings)

    def clip(*_):
        if norm:
            torch.nn.utils.clip_grad_norm_(p, norm)
        if value:
            torch.nn.utils.clip_grad_value_(p, value)
        for one in p if each else ():
            torch.nn.utils.clip_grad_norm_(one, each)

    made.register_step_pre_hook(clip)
    schedule = torch.optim.lr_scheduler.ExponentialLR(made, decay)
    if decay < 1:
        made.register_step_post_hook(lambda *_: schedule.step())
    return made


def tf_update(kind="Adam", decay=1.0, **settings):
    import keras

    rate = 2**-7 if decay == 1 else keras.optimizers.schedules.ExponentialDecay(2**-7, 1, decay)
    return getattr(keras.optimizers, kind)(rate, **settings)


def optimizers(torch, tf):
    return {"optimizer": {"torch": part(torch_update, **torch), "tf": part(tf_update, **tf)}}


def losses(torch, tf):
    return {"loss": {"torch": part(torch_cross, **torch), "tf": part(tf_cross, **tf)}, "metric": "loss"}


wrong("smoothing", "points", *plain, "label smoothing", **losses({"smoothing": 0.1}, {}))
right("smoothed", "points", *plain, **losses({"smoothing": 0.1}, {"smoothing": 0.1}))
wrong("loss", "points", *plain, "is 0.5 times", **losses({}, {"factor": 0.5}))
WEIGHED = {"loss": {"torch": part(torch_weighed, weights=(1.0, 2.0, 0.5)), "tf": tf_cross}, "metric": "loss"}
wrong("class weights", "points", *plain, "classes have different weights", **WEIGHED)
FOCAL = {"loss": {"torch": part(torch_weighed, gamma=2.0), "tf": tf_cross}, "metric": "loss"}
wrong("focal", "points", *plain, "the loss is focal in torch, with a gamma of 2", **FOCAL)
PACED = {"kind": "SGD", "decay": 0.9}
right("schedule", "points", *plain, **optimizers(PACED, PACED))
wrong("no schedule", "points", *plain, "the learning rate of step 2", **optimizers(PACED, {"kind": "SGD"}))
MOVING = {**PACED, "momentum": 0.5}
wrong("convention", "points", *plain, "momentum follows them differently", **optimizers(MOVING, MOVING))
ROOT = {"kind": "RMSprop", "alpha": 0.9, "eps": 1e-3}, {"kind": "RMSprop", "rho": 0.9, "epsilon": 1e-3}
wrong("root", "points", *plain, "adds epsilon under the root", **optimizers(*ROOT))
right("adam", "points", *plain, accept=("epsilon",), **optimizers({}, {"epsilon": 1e-8}))
right("momentum", "points", *plain, **optimizers({"kind": "SGD", "momentum": 0.5}, {"kind": "SGD", "momentum": 0.5}))
right(
    "momentum 0.9", "points", *plain, **optimizers({"kind": "SGD", "momentum": 0.9}, {"kind": "SGD", "momentum": 0.9})
)
SGD = {"kind": "SGD", "momentum": 0.5}
wrong("nesterov", "points", *plain, "nesterov", **optimizers({**SGD, "nesterov": True}, SGD))
wrong("other momentum", "points", *plain, "momentum: 0.5 in torch", **optimizers(SGD, {**SGD, "momentum": 0.9}))
wrong("clip", "points", *plain, "clip", **optimizers(SGD, {**SGD, "clipvalue": 1e-3}))
wrong("clip norm", "points", *plain, "clip", **optimizers(SGD, {**SGD, "global_clipnorm": 1e-3}))
wrong("amsgrad", "points", *plain, "amsgrad", accept=("epsilon",), **optimizers({"amsgrad": True}, {"epsilon": 1e-8}))
wrong("beta_2", "points", *plain, "beta_2", accept=("epsilon",), **optimizers({}, {"epsilon": 1e-8, "beta_2": 0.99}))
ADAM, OTHERWISE = {"epsilon": 1e-8}, "the learning rate of step 2"
PACES = [{"decay": 0.9}, {"decay": 0.9, **ADAM}]
right("paced adam", "points", *plain, accept=("epsilon",), **optimizers(*PACES))
SLOWER = optimizers(PACES[0], {"decay": 0.8, **ADAM})
wrong("slower adam", "points", *plain, OTHERWISE, accept=("epsilon",), **SLOWER)
ADDED, ACCEPTED = "divides by that norm plus 1e-06", ("clip_epsilon",)
NORM, KERAS_NORM = {**SGD, "norm": 1e-2}, {**SGD, "global_clipnorm": 1e-2}
right("clip by norm", "points", *plain, accept=ACCEPTED, **optimizers(NORM, KERAS_NORM))
wrong("added to norm", "points", *plain, ADDED, **optimizers(NORM, KERAS_NORM))
TWICE = "global_clipnorm: 0.01 in torch, 0.02"
wrong("other norm", "points", *plain, TWICE, **optimizers(NORM, {**SGD, "global_clipnorm": 2e-2}))
wrong("norm in torch", "points", *plain, "global_clipnorm: 0.01 in torch, none", **optimizers(NORM, SGD))
VALUE = {**SGD, "value": 1e-3}
right("value", "points", *plain, **optimizers(VALUE, {**SGD, "clipvalue": 1e-3}))
wrong("norm for value", "points", *plain, "clipvalue: 0.001 in torch, none", **optimizers(VALUE, KERAS_NORM))
EACH = {**SGD, "each": 1e-3}, {**SGD, "clipnorm": 1e-3}
right("norm of each", "points", *plain, accept=ACCEPTED, **optimizers(*EACH))
BOTH = optimizers({"norm": 1e-2, **PACES[0]}, {"global_clipnorm": 1e-2, **PACES[1]})
right("norm and adam", "points", *plain, accept=("epsilon", "clip_epsilon"), **BOTH)
wrong("added to norm of adam", "points", *plain, ADDED, accept=("epsilon",), **BOTH)
right("large norm", "points", *plain, **optimizers({**SGD, "norm": 1e4}, {**SGD, "global_clipnorm": 1e4}))
DECAY = {"kind": "AdamW", "weight_decay": 0.125, "epsilon": 1e-8}
EQUAL = optimizers({"kind": "AdamW", "weight_decay": 0.125}, DECAY)
right("adamw", "points", *plain, accept=("epsilon",), **EQUAL)
wrong("epsilon of adamw", "points", *plain, "Adam's epsilon acts as 1e-08", **EQUAL)
wrong("l2", "points", *plain, "weight decay in the gradient", **optimizers({"weight_decay": 0.125}, DECAY))
wrong("dampening", "points", *plain, "dampening", **optimizers({**SGD, "dampening": 0.5}, SGD))
PENALIZED = 'L.Dense(12, "tanh", kernel_regularizer="l2")'
wrong(
    "penalty",
    "points",
    module("nn.Sequential(nn.Linear(12, 12), nn.Tanh())"),
    layer(PENALIZED),
    "is in the loss of Keras only",
)
FROZEN = module("nn.Sequential(nn.Linear(12, 12).requires_grad_(False), nn.Tanh())")
KERAS_FROZEN = layer('L.Dense(12, "tanh", trainable=False)')
right("frozen", "points", FROZEN, KERAS_FROZEN)
wrong("frozen in torch", "points", FROZEN, layer('L.Dense(12, "tanh")'), "frozen in torch, and trained in TensorFlow")
wrong(
    "frozen in keras",
    "points",
    module("nn.Sequential(nn.Linear(12, 12), nn.Tanh())"),
    KERAS_FROZEN,
    "frozen in TensorFlow",
)

globals().update(PORTS.in_file())
