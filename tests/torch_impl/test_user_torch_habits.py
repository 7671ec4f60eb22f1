"""Why a right strategy cannot take the step of a user's torch model: found by experiment, and claimed only if one shows it."""

import re
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.workload.models.description import read_description
from samestep.common.workload.models.findings import Habits
from tests.cells import slow
from tests.lent import LentLauncher
from tests.own.asked import ZOO

pytestmark = pytest.mark.torch

NET = """
import random

import numpy, samestep, torch
from torch import nn
from torch.nn import functional

class Mean(nn.Module):
    def forward(self, x):
        return x - x.mean(0)

class Noise(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 6), nn.Linear(6, 2)
        self.register_buffer("mean", torch.zeros(6))
        self.calls = 0
        {made}

    def forward(self, x):
        h = torch.tanh(self.hidden(x))
        {does}
        return self.out(h)

def loss(outputs, targets):
    return (outputs - targets) ** 2{loss}

model = samestep.Model(torch=Net, loss={{"torch": loss}})
"""
MOVE = """if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
        """
RUNNING = MOVE + "h = h - self.mean"


def write_net(folder: Path, does: str = "", made: str = "pass", loss: str = "") -> str:
    (folder / "net.py").write_text(NET.format(made=made, does=does, loss=loss))
    return str(folder / "net.py")


def asked(cell: str, model: str, **fields: object) -> RunConfig:
    devices = {} if "single" in cell else {"devices": 2}
    named = {"model": model, "data": f"{ZOO}:points", **devices, "batch_size": 48, "steps": 6, "dtype": "float64"}
    return Cell.parse(cell).apply_to(RunConfig(**{**named, **fields}))


RESTLESS = Habits(restless=("mean",), mixing=("its forward pass",))


def draws(*names: str) -> Habits:
    return Habits(randoms=names or ("its forward pass",))


@pytest.mark.parametrize(
    ("does", "made", "habits"),
    [
        ("", "pass", Habits()),
        pytest.param("h = functional.layer_norm(h, (6,))", "pass", Habits(), marks=pytest.mark.slow),
        ("h = h + torch.randn_like(h)", "pass", draws()),
        ("h = h + h.new_empty(h.shape).normal_(0, 0.1)", "pass", draws()),
        pytest.param("h = h * torch.bernoulli(torch.full_like(h, 0.9))", "pass", draws(), marks=pytest.mark.slow),
        pytest.param("h = h * (torch.rand(h.shape) > 0.1)", "pass", draws(), marks=pytest.mark.slow),
        ("h = functional.dropout(h, 0.1, self.training)", "pass", draws()),
        pytest.param("h = functional.gumbel_softmax(h)", "pass", draws(), marks=pytest.mark.slow),
        ("torch.manual_seed(0); h = h + torch.randn_like(h)", "pass", draws()),
        pytest.param("h = h[torch.randperm(len(h))]", "pass", draws(), marks=pytest.mark.slow),
        pytest.param("h = self.drop(h)", "self.drop = nn.Dropout(0.1)", draws("drop"), marks=pytest.mark.slow),
        ("h = self.inner(h)", "self.inner = nn.Sequential(Noise(), nn.Dropout(0.1))", draws("inner.0", "inner.1")),
        (
            "h = self.lstm(h[:, None])[0][:, 0]",
            "self.lstm = nn.LSTM(6, 6, 2, dropout=0.5, batch_first=True)",
            draws("lstm"),
        ),
        ("h = h + torch.randn(h.shape, generator=self.own)", "self.own = torch.Generator()", draws()),
        ("h = h * random.random()", "pass", Habits(randoms=("its forward pass",), are_stilled=False)),
        (
            "h = h + float(numpy.random.rand())",
            "pass",
            Habits(randoms=("its forward pass",), are_stilled=False),
        ),
        (RUNNING, "pass", Habits(running=("mean",))),
        ("self.mean.add_(h.detach().mean(0)); h = h - self.mean", "pass", RESTLESS),
        (MOVE, "pass", Habits()),  # no output depends on it
        (RUNNING + "; h = h + torch.randn_like(h)", "pass", Habits(randoms=("its forward pass",), running=("mean",))),
        ("h = self.norm(h)", "self.norm = nn.BatchNorm1d(6)", Habits()),  # found by its kind
        ("h = h - h.mean(0)", "pass", Habits(mixing=("its forward pass",))),
        ("h = h + h.roll(1, 0)", "pass", Habits(mixing=("its forward pass",))),
        ("h = self.inner(h)", "self.inner = nn.Sequential(nn.Tanh(), Mean())", Habits(mixing=("inner.1",))),
        ("h = Noise()(h - h.mean(0))", "pass", Habits(randoms=("its forward pass",), mixing=("its forward pass",))),
        ("self.calls += 1; h = h * self.calls", "pass", Habits(is_steady=False)),
    ],
)
def test_what_a_forward_pass_depends_on(
    launcher: Launcher, tmp_path: Path, does: str, made: str, habits: Habits
) -> None:
    """Random numbers of each source, and of layers; `make test-slow` has further functions of the same sources."""
    config = launcher.describe(asked("torch:ddp", write_net(tmp_path, does, made)))
    assert read_description(str(config.described)).habits == habits


def test_a_loss_that_mixes_examples(launcher: Launcher, tmp_path: Path) -> None:
    config = launcher.describe(asked("torch:ddp", write_net(tmp_path, loss=" - outputs.mean(0)")))
    assert read_description(str(config.described)).habits == Habits(mixing=("its loss",))


def judged(launcher: Launcher, config: RunConfig, out: Path) -> RunResult:
    config = launcher.describe(config)
    run, launch = parse(config), launch_of(config)
    return launcher.run(run, type(launch)(**{**vars(launch), "out": str(out)}))


NOISE = r"the random numbers of 1 layer \(its forward pass\)"
MOVES = r"the moves of 1 running buffer \(mean\)"
STILL, HELD = r"switched off \(--no-dropout\)", r"frozen \(--batch-norm frozen\)"
ON_SHARDS, OFF = "your model is not the same function on shards:", r"\. The losses are off by \S+;"
ACCUMULATED = r"torch:single with --accumulation-steps 2 mixes the same examples, and is \S+ from it"


@pytest.mark.parametrize(
    ("cell", "does", "reason"),
    [
        (
            "torch:ddp",
            "h = h + 0.1 * torch.randn_like(h)",
            rf"{ON_SHARDS} {NOISE}{OFF} with these {STILL}, by \S+",
        ),
        ("torch:ddp", RUNNING, rf"{ON_SHARDS} {MOVES}{OFF} with these {HELD}, by \S+"),
        (
            "torch:ddp",
            "h = h - h.mean(0)",
            rf"{ON_SHARDS} the mixing of a batch's examples in its forward pass{OFF} {ACCUMULATED}",
        ),
        (
            "torch:ddp",
            RUNNING + "; h = h + 0.1 * torch.randn_like(h)",
            rf"{ON_SHARDS} {NOISE} and {MOVES}{OFF} with these {STILL} and {HELD}, by \S+",
        ),
        pytest.param(
            "torch:ddp",
            RUNNING.replace("h = h - self.mean", "h = functional.dropout(h - self.mean, 0.1, self.training)"),
            rf"{ON_SHARDS} {NOISE} and {MOVES}{OFF} with these {STILL} and {HELD}, by \S+",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "torch:ddp",
            "h = functional.dropout(h - h.mean(0), 0.1, self.training)",
            rf"{ON_SHARDS} {NOISE} and the mixing of a batch's examples in its forward pass{OFF} with these {STILL}, "
            rf"{ACCUMULATED}",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "torch:fsdp",
            "h = h - h.mean(0)",
            rf"{ON_SHARDS} the mixing of a batch's examples in its forward pass{OFF} {ACCUMULATED}",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "torch:single+accumulation_steps=2",
            "h = h - h.mean(0)",
            r"not the same function: the losses are off by \S+, and the mixing of a batch's examples in its forward pass "
            r"differs with --accumulation-steps 2, which takes parts of a batch",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_cause_is_named_with_its_share(launcher: Launcher, tmp_path: Path, cell: str, does: str, reason: str) -> None:
    result = judged(launcher, asked(cell, write_net(tmp_path, does)), tmp_path / "run")
    assert result.parity.passed is False
    assert re.fullmatch(reason, result.parity.reason), result.parity.reason


@pytest.mark.parametrize(
    ("does", "fields"), [("h = h + torch.randn_like(h)", {"dropout": False}), (RUNNING, {"batch_norm": "frozen"})]
)
def test_the_remedy_that_is_named_is_one(
    launcher: Launcher, tmp_path: Path, does: str, fields: dict[str, object]
) -> None:
    result = judged(launcher, asked("torch:ddp", write_net(tmp_path, does), **fields), tmp_path / "run")
    assert result.parity.passed, result.parity.reason


@pytest.mark.parametrize("does", ["", *slow("h = h - h.mean(0)", MOVE)])
def test_nothing_is_claimed_where_the_strategy_is_wrong(launcher: Launcher, tmp_path: Path, does: str) -> None:
    """The exchange forgets a hundredth, in a model with no cause of its own, or with one that does not explain it."""
    made = "self.wide = nn.Linear(6, 40); self.back = nn.Linear(40, 6)"
    model = write_net(
        tmp_path, f"{does}\n        h = self.back(self.wide(h))" if does else "h = self.back(self.wide(h))", made
    )
    with LentLauncher(launcher, "tests.own.broken_worker") as lent:
        result = judged(lent, asked("torch:c10d", model), tmp_path / "run")
    assert result.parity.passed is False
    assert "all of it" not in result.parity.reason and "strategy is right" not in result.parity.reason


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (
            "h = h + torch.from_numpy(numpy.random.rand(*h.shape))",
            "; the random numbers of 1 layer (its forward pass) cannot be switched off here",
        ),
        (
            "h = h * random.SystemRandom().random()",
            "; called again with the same seed, weights and buffers, its forward pass gives other outputs",
        ),
        (
            "self.mean.add_(h.detach().mean(0)); h = h - self.mean",
            "; its forward pass updates 1 running buffer (mean) in evaluation mode as well, which cannot be switched off here",
        ),
    ],
)
def test_what_cannot_be_switched_off_is_said_and_not_claimed(
    launcher: Launcher, tmp_path: Path, does: str, said: str
) -> None:
    reason = judged(launcher, asked("torch:ddp", write_net(tmp_path, does)), tmp_path / "run").parity.reason
    assert reason.endswith(said) and "all of it" not in reason and "still by" not in reason
