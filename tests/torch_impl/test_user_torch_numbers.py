"""Numbers of a user's torch model that are not of --dtype: complex ones are refused, others are cast with a word."""

from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from tests.own.asked import ZOO

pytestmark = pytest.mark.torch

NET = """
import samestep, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 6), nn.Linear(6, 2)
        {made}

    def forward(self, x):
        x = self.out(torch.tanh(self.hidden(x)))
        return {returned}

def loss(outputs, targets):
    return {loss}

model = samestep.Model(torch=Net, loss={{"torch": loss}})
"""


def write_net(folder: Path, made: str = "", returned: str = "x", loss: str = "(outputs - targets) ** 2") -> str:
    (folder / "net.py").write_text(NET.format(made=made or "pass", returned=returned, loss=loss))
    return str(folder / "net.py")


def asked(model: str, data: str = f"{ZOO}:points", dtype: str = "float64") -> RunConfig:
    return RunConfig(strategy="ddp", devices=2, batch_size=48, dtype=dtype, model=model, data=data)


def refusal(launcher: Launcher, model: str, data: str = f"{ZOO}:points") -> str:
    with pytest.raises(ConfigError) as caught:
        launcher.describe(asked(model, data))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", ["cfloat", "cdouble"])
@pytest.mark.parametrize(
    ("made", "what"),
    [
        ("self.w = self.hidden.w = nn.Parameter(torch.ones(6, dtype=torch.{dtype}))", "the parameter w is complex"),
        ("self.register_buffer('f', torch.ones(6, dtype=torch.{dtype}))", "the buffer f is complex"),
        ("self.register_buffer('f', torch.ones(6, dtype=torch.{dtype}), persistent=False)", "the buffer f is complex"),
    ],
)
def test_complex_buffers_and_shared_parameters_are_refused(
    launcher: Launcher, tmp_path: Path, made: str, what: str, dtype: str
) -> None:
    said = refusal(launcher, write_net(tmp_path, made.format(dtype=dtype)))
    assert what in said and "torch.view_as_real(...)" in said


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"returned": "torch.complex(x, x)"}, "the model returns complex128; return real numbers"),
        ({"returned": "{'logits': torch.complex(x, x)}"}, "the model returns complex128; return real numbers"),
        ({"returned": "x.argmax(-1, keepdim=True)"}, "the model returns int64, which has no gradient"),
        ({"loss": "torch.complex(outputs, outputs)"}, "the loss returns complex128; return real numbers"),
        ({"loss": "(outputs > targets)"}, "the loss returns bool, which has no gradient"),
        (
            {"made": "self.n = nn.Parameter(torch.arange(3), requires_grad=False)"},
            "the parameter n is int64, which has no gradient; register it as a buffer",
        ),
    ],
)
def test_what_has_no_real_gradient_is_refused(
    launcher: Launcher, tmp_path: Path, fields: dict[str, str], message: str
) -> None:
    assert message in refusal(launcher, write_net(tmp_path, **fields))


@pytest.mark.parametrize("kind", ["inputs", "targets"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_data_are_refused(launcher: Launcher, tmp_path: Path, kind: str, dtype: type) -> None:
    arrays = {"inputs": np.ones((60, 6)), "targets": np.ones((60, 2))}
    arrays[kind] = arrays[kind].astype(dtype)
    np.savez(tmp_path / "a.npz", **{f"{part}_{name}": arrays[name] for part in ("train", "test") for name in arrays})
    said = refusal(launcher, write_net(tmp_path), str(tmp_path / "a.npz"))
    assert f"train_{kind} is {np.dtype(dtype)}; give real numbers: its real and its imaginary part" in said


@pytest.mark.parametrize(
    ("made", "dtype", "said"),
    [
        (
            "self.to(torch.bfloat16)",
            "float64",
            "4 parameters and buffers are bfloat16 (hidden.weight, hidden.bias, out.weight, ...) in the file, and "
            "cast to float64",
        ),
        ("self.out.half()", "float32", "2 parameters and buffers are float16 (out.weight, out.bias) in the file"),
        (
            "self.out.half(); self.hidden.double()",
            "float32",
            "2 parameters and buffers are float64 (hidden.weight, hidden.bias), 2 parameters and buffers are float16 (",
        ),
        (
            "self.register_buffer('f', torch.ones(6).half())",
            "float64",
            "1 parameter or buffer is float16 (f) in the file",
        ),
        ("self.double()", "float64", ""),
        ("self.register_buffer('n', torch.arange(6))", "float64", ""),
        ("", "float64", ""),
        ("", "float32", ""),
    ],
)
def test_another_dtype_is_cast_with_a_word(
    launcher: Launcher, tmp_path: Path, made: str, dtype: str, said: str
) -> None:
    config = launcher.describe(asked(write_net(tmp_path, made), dtype=dtype))
    note = check_launch(parse(config), launch_of(config))
    assert said in note if said else not note


def test_outputs_in_two_bytes_are_widened(launcher: Launcher, tmp_path: Path) -> None:
    launcher.describe(asked(write_net(tmp_path, returned="x.bfloat16()")))
