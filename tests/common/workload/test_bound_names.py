"""A wrong name of a model is told from the text of its file; what the text cannot decide is left to the import."""

from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.workload.declared import absolute_source

_NET = "net = samestep.Model(torch=build)"


@pytest.mark.parametrize(
    "lines",
    [
        ("import samestep", _NET),
        ("import samestep as s", "net = s.Model(torch=build)"),
        ("from samestep import Model as M", "net = M(torch=build)"),
        ("import samestep", "if True:", f"    {_NET}", "def build():", "    model = 3"),
        ("import samestep", "net: object = samestep.Model(torch=build)"),
        ("import keras", "import samestep", _NET, "net2 = keras.Model()"),
    ],
)
def test_a_name_that_the_file_does_not_bind(tmp_path: Path, lines: tuple[str, ...]) -> None:
    (path := tmp_path / "net.py").write_text("\n".join(lines))
    with pytest.raises(
        ConfigError,
        match=r"^unknown model 'model'\. Name one that the file declares, as in --model .*net\.py:net\. Choose from: net\.$",
    ):
        absolute_source(str(path))
    assert absolute_source(f"{path}:net") == f"{path}:net"


@pytest.mark.parametrize(
    "line",
    [
        "model: object = samestep.Model(torch=build)",
        "from mine import model",
        "import mine.model as model",
        "from mine import *",
        "globals()['mod' + 'el'] = net",
        "def __getattr__(name):\n    return net",
        "def bind():\n    global model\n    model = net\nbind()",
        "for model in [net]:\n    pass",
        "with open('x') as model:\n    pass",
        "def model():\n    pass",
        "(a, [model, *b]) = 1, (net, 2)",
        "print((model := net))",
        "match net:\n    case model:\n        pass",
        "match [net]:\n    case [*model]:\n        pass",
        "match {}:\n    case {**model}:\n        pass",
        "def broken(:",
    ],
)
def test_what_may_bind_the_name_is_imported(tmp_path: Path, line: str) -> None:
    (path := tmp_path / "net.py").write_text(f"import samestep\n{_NET}\n{line}\n")
    assert absolute_source(str(path)) == f"{path}:model"


@pytest.mark.parametrize(
    "line", ["x = 1", "import torch.nn as nn\nnet = nn.Linear(1, 1)", "from keras.layers import Dense"]
)
def test_a_file_that_can_have_no_model_is_told_before_its_import(tmp_path: Path, line: str) -> None:
    (path := tmp_path / "net.py").write_text(f"{line}\nimport os, numpy\n")
    with pytest.raises(ConfigError, match=r"the file declares no model; add `model = samestep\.Model\(torch=\.\.\.\)`"):
        absolute_source(str(path))


def test_a_file_without_a_model_is_imported(tmp_path: Path) -> None:
    """It may get one from a function of another file."""
    (path := tmp_path / "net.py").write_text("from mine import make\nnet = make()\n")
    assert absolute_source(str(path)) == f"{path}:model"
