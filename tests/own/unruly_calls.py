"""Made-up model files whose error is raised inside a framework that their line calls, or that are no fit modules.

They are made of the parts of `unruly.py`, for torch, and of one of Keras.
"""

from tests.own.malformed import file
from tests.own.unruly import LATER, NET, data, loss, model, optimizer

METHOD = "        def forward"
WITH = "model = samestep.Model(torch=net, loss='mean_squared_error', metric={metric})"
KERAS = """
def net():
    import keras, tensorflow as tf
    from keras import layers, ops

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.out = layers.Dense(2{settings})

        def call(self, x, training=False):
            y = self.out(x)
            {called}
            return y

    {built}
    return Net()
"""
SCHEDULED = """
def opt(p):
    import torch
    made = torch.optim.SGD(p, 0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda n: [1][n])
    made.register_step_post_hook(lambda *_: schedule.step())
    return made

"""


def later(what: str) -> str:
    return model(called=LATER.format(what=what))


def method(text: str) -> str:
    return file(NET.replace(METHOD, f"        {text}\n\n{METHOD}").format(made="pass", called="pass"))


def forward(given: str) -> str:
    return file(NET.replace("forward(self, x)", given).format(made="pass", called="pass"))


def built(text: str) -> str:
    return file(f"def net():\n    import torch\n    {text}\n")


def keras(called: str = "pass", settings: str = "", built: str = "pass", declared: str = "") -> str:
    text = KERAS.format(called=called, settings=settings, built=built)
    return file(text, f"model = samestep.Model(tf=net, loss='mean_squared_error'{declared})")


REFUSED = {
    # raised inside torch, by a line of the file, in a run alone
    "a layer later": later("self.out(x[:, :3])"),
    "a function later": later("nn.functional.cross_entropy(y, y[:1].long())"),
    "a list later": later("nn.ModuleList([5])"),
    "an array later": later("y.numpy()"),
    "a hook of gradients later": later("y.register_hook(lambda g: g[:, :1] @ g)"),
    "an old norm later": later("nn.utils.remove_weight_norm(self.out)"),
    "fewer outputs later": model(called="y = y[:-1] if len(x) > 5 and not self.training else y"),
    "writes what is kept later": later("y = y.exp(); y.add_(1)"),
    "a loss that writes what is kept later": loss(
        "((o.exp().add_(1) if len(o) > 5 and o.requires_grad else o) - t) ** 2"
    ),
    "a recursion later": later("self(x)"),
    # raised inside torch when it is described
    "a hook": model(made="self.out.register_forward_hook(lambda *_: 1 / 0)"),
    "a hook of gradients": model(called="y.register_hook(lambda g: 1 / 0) if y.requires_grad else 0"),
    "one call of many": model(called="if self.count == 4: raise ValueError('this one')"),
    "writes a leaf": model(called="self.out.weight.add_(1)"),
    "writes what is kept": model(called="y = y.exp(); y.add_(1)"),
    "a buffer that grows": model(
        made="self.register_buffer('b', torch.ones(1))", called="self.b = torch.cat([self.b, self.b])"
    ),
    "trains by turns": model(called="self.out.weight.requires_grad_(not self.out.weight.requires_grad)"),
    "returns a parameter": model(called="y = self.out.weight"),
    "an open file": model(made="self.file = open('/dev/null')"),
    "two inputs": forward("forward(self, x, z)"),
    "an input by keyword": forward("forward(self, *, x)"),
    "no self": forward("forward(x)"),
    "a schedule that ends": file(
        SCHEDULED + "def net():\n    from torch import nn\n    return nn.Linear(6, 2)\n",
        "model = samestep.Model(torch=net, loss='mean_squared_error', optimizer={'torch': opt})",
    ),
    "no optimizer": optimizer("lambda p: __import__('torch').optim.lr_scheduler.LRScheduler"),
    "a metric of few": file(declaration=WITH.format(metric="lambda o, t: 1 if len(o) < 20 else 1 / 0")),
    "a loss of other shapes": loss("__import__('torch').nn.functional.cross_entropy(o, t[:1])"),
    # no module as a strategy needs it
    "no forward": built("m = torch.nn.Module(); m.a = torch.nn.Linear(6, 2); return m"),
    "no attributes": method("def __getattr__(self, name): raise RuntimeError(name)"),
    "train of nothing": method("def train(self): return self"),
    "parameters of its own": method("def parameters(self, recurse=True): return [1, 2]"),
    "a new parameter in each call": model(called="self.out.weight = nn.Parameter(self.out.weight.detach() * 1)"),
    "a parameter that comes": model(called="self.more = nn.Parameter(torch.ones(2)); y = y + self.more"),
    "a weight that is no leaf": model(
        made="w = self.out.weight; del self.out.weight; self.out.weight = w * 2; self.w = w"
    ),
    "for inference": built("with torch.inference_mode(): return torch.nn.Linear(6, 2)"),
    "without numbers": built("with torch.device('meta'): return torch.nn.Linear(6, 2)"),
    "a script": built("return torch.jit.script(torch.nn.Linear(6, 2))"),
    "closes its outputs": built("import os; os.close(1); os.close(2); return torch.nn.Linear(6, 2)"),
    "a compiled one": built("return torch.compile(torch.nn.Linear(6, 2))"),
    # the data
    "truths": data("return x[:60] > 0, t[:60], x[60:] > 0, t[60:]"),
    "numbers beyond float32": data("return x[:60] * 1e300, t[:60], x[60:], t[60:]"),
    "masked inputs": data("return np.ma.masked_greater(x[:60], 1), t[:60], x[60:], t[60:]"),
    # Keras
    "a session that is cleared": keras(built="keras.utils.clear_session()"),
    "another default dtype": keras(built="keras.config.set_floatx('float16')"),
    "an array of Keras": keras("y.numpy()"),
    "a branch of Keras": keras("y = y if tf.reduce_sum(y) > 0 else -y"),
    "a layer of Keras": keras("self.out(x[:, :3])"),
    "a variable in each call": keras("y = y + self.add_weight(shape=(2,))"),
    "no gradient": keras("y = tf.stop_gradient(y)"),
    "a regularizer": keras(settings=", kernel_regularizer=lambda w: 1 / 0"),
    "a policy": keras(built="keras.mixed_precision.set_global_policy('mixed_float16')"),
    "the name of an optimizer": keras(declared=", optimizer={'tf': lambda: 'adam'}"),
}
"""What must be one line with exit code 2, and leave nothing running."""
ONLY_RUN = tuple(name for name in REFUSED if name.endswith("later"))
KERAS_ALONE = tuple(name for name, text in REFUSED.items() if "tf=net" in text)
