"""Made-up model files and data that are wrong: what a user might write, one mistake each."""

import itertools

GOOD_MODEL = "def net():\n    from torch import nn\n    return nn.Linear(6, 2)\n"
GOOD_DECLARATION = "model = samestep.Model(torch=net, loss='mean_squared_error')"
GOOD_DATA = "return x[:60], t[:60], x[60:], t[60:]"

VALUES = ("5", "'x'", "None", "[1]", "{'torch': 5}", "lambda *a: 1 / 0")
FIELDS = {
    "torch": ("5", "'x'", "[1]", "{'torch': 5}", "lambda: 1 / 0", "lambda: 5", "lambda x: x", "net()"),
    "loss": (
        "5",
        "'x'",
        "[1]",
        "{'torch': 5}",
        "{'tf': net}",
        "{'torch': lambda o, t: 1 / 0}",
        "{'torch': lambda o, t: 'x'}",
    ),
    "reduction": (
        "5",
        "'x'",
        "[1]",
        "'mean'",
        "lambda t: 0",
        "lambda t: 'x'",
        "lambda t: 1 / 0",
        "lambda t: float('nan')",
    ),
    "metric": ("5", "'x'", "[1]", "lambda o, t: 1 / 0", "lambda o, t: 'x'", "lambda o: 1.0"),
    "blocks": ("5", "'x'", "['nothing']", "{'a': 1}"),
    "segments": (
        "5",
        "{'torch': 5}",
        "{'torch': lambda m: 5}",
        "{'torch': lambda m: {}}",
        "{'torch': lambda m: {'no': m}}",
    ),
    "tensor_plan": ("5", "{'nothing': 'column'}", "{'*': 'diagonal'}", "[1]"),
    "optimizer": ("5", "{'torch': 5}", "{'torch': lambda p: 5}", "{'torch': lambda p: 1 / 0}"),
    "names": ("5", "'x'", "[1]"),
    "nothing": ("5",),
}
"""Argument of `samestep.Model` -> values that it does not take."""
MODELS = (
    "def net(:",
    "import nothing_like_it\n",
    "raise RuntimeError('first\\nsecond')\n",
    "import keras\n",
    "def net():\n    return None\n",
    "def net():\n    raise ValueError('two\\nlines')\n",
    "def net():\n    from torch import nn\n    return nn.Linear(5, 2)\n",
    "def net():\n    from torch import nn\n    return nn.Linear(6, 3)\n",
    "def net():\n    from torch import nn\n    return nn.Sequential()\n",
    "def net():\n    from torch import nn\n    return nn.LazyLinear(2)\n",
    "def net():\n    from torch import nn\n    return nn.Linear(6, 2).requires_grad_(False)\n",
    "def net():\n    from torch import nn\n    return nn.Linear(6, 2, dtype=nn.Linear(1, 1).weight.cfloat().dtype)\n",
    "def net():\n    from torch import nn\n    return nn.LSTM(6, 2)\n",
    "def net():\n    from torch import nn\n    return nn.Embedding(6, 2)\n",
    "def net():\n    from torch import nn\n    return type('N', (nn.Linear,), {'forward': lambda s: 1})(6, 2)\n",
    "def net():\n    from torch import nn\n    return type('N', (nn.Linear,), {'forward': lambda s, x: x.argmax(-1)})(6, 2)\n",
    "def net():\n    from torch import nn\n    return type('N', (nn.Linear,), {'forward': lambda s, x: None})(6, 2)\n",
    "def net():\n    from torch import nn\n    return type('N', (nn.Linear,), {'forward': lambda s, x: x[:, :2] * 2})(6, 2)\n",
    "def net():\n    import sys\n    sys.exit(3)\n",
    "def net():\n    exec('x' * 3)\n",
)
DECLARATIONS = (
    "",
    "model = 5",
    "other = samestep.Model(torch=net)",
    "model = samestep.Model()",
    "model = samestep.Model(net)",
)
DATA = (
    "return 5",
    "return None",
    "return x, t",
    "return {}",
    "return {'train_inputs': x}",
    "raise ValueError('two\\nlines')",
    "return x[:60], t[:50], x[60:], t[60:]",
    "return x[:0], t[:0], x[60:], t[60:]",
    "return x[:60], t[:60], x[60:, :3], t[60:]",
    "return x[:60], t[:60], x[60:], t[60:, :1]",
    "return x[:60] * np.nan, t[:60], x[60:], t[60:]",
    "return x[:60] + 1j, t[:60], x[60:], t[60:]",
    "return x[:60].astype(str), t[:60], x[60:], t[60:]",
    "return x[:60].astype(object), t[:60], x[60:], t[60:]",
    "return x[:60], t[:60].astype(int), x[60:], t[60:].astype(int)",
    "return x[:60], t[:60] * np.inf, x[60:], t[60:]",
    "return x[:60, :, None], t[:60], x[60:, :, None], t[60:]",
    "return {'a': x[:60]}, t[:60], {'b': x[60:]}, t[60:]",
    "return {'a': x[:60]}, t[:60], {'a': x[60:]}, t[60:]",
    "return x[:60], {'t': t[:60]}, x[60:], {'t': t[60:]}",
    "return 'x', 'y', 'z', 'w'",
    "return (x[:60], t[:60], x[60:], t[60:])[::-1]",
    "return iter(())",
    "return x[:60], t[:60], x[60:], t[60:], x",
    "import keras",
)


def file(model: str = GOOD_MODEL, declaration: str = GOOD_DECLARATION, data: str = GOOD_DATA) -> str:
    drawn = "    import numpy as np\n    d = np.random.default_rng(0)\n"
    load = f"{drawn}    x = d.normal(size=(80, 6)); t = d.normal(size=(80, 2))\n"
    return f"import samestep\n{model}\ndef load():\n{load}    {data}\n{declaration}\n"


def every() -> list[str]:
    """All of them, as texts of files."""
    base = {"torch": "net", "loss": "'mean_squared_error'"}
    declared = [
        f"model = samestep.Model({', '.join(f'{k}={v}' for k, v in {**base, name: value}.items())})"
        for name, value in itertools.chain.from_iterable(((n, v) for v in vs) for n, vs in FIELDS.items())
    ]
    return [
        *(file(declaration=each) for each in (*declared, *DECLARATIONS)),
        *(file(model=each) for each in MODELS),
        *(file(data=each) for each in DATA),
    ]
