"""What is wrong with a user's own torch model, and which row cannot take it: one line each, before anything trains."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from tests.conftest import RunCell
from tests.own.asked import ZOO, own

pytestmark = pytest.mark.torch


def torch_has_cuda() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def told(launcher: Launcher, cell: str, **fields: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(launcher.describe(Cell.parse(cell).apply_to(RunConfig(**{"devices": 2, "batch_size": 48, **fields}))))
    return str(caught.value)


@pytest.mark.parametrize(
    ("cell", "model", "lacks"),
    [
        ("torch:pp", "GPT", "add `segments={'torch': function}` to its samestep.Model"),
        ("torch:tp", "GPT", "add `tensor_plan={'blocks.*.up': 'column', 'blocks.*.down': 'row'}`"),
        ("torch:pp", "TIED_GPT", "tokens/table is tied: the segments tokens+positions and norm+head both use it"),
        ("torch:dp", "RESNET", "loses the buffers of torch_zoo:RESNET (1/running_mean, ...); use torch:ddp."),
    ],
)
def test_a_row_that_cannot_take_the_model_says_what_it_lacks(
    launcher: Launcher, cell: str, model: str, lacks: str
) -> None:
    assert lacks in told(launcher, cell, **own(model))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["import nothing_like_it"],
            "ModuleNotFoundError: No module named 'nothing_like_it' (net.py:1 `import nothing_like_it`)",
        ),
        (["def broken(:"], "SyntaxError: invalid syntax (net.py:1 `def broken(:`)"),
        (
            ["import keras", "import samestep"],
            "line 1, `import keras`, imports keras into the processes of torch; move the line into the function",
        ),
        (["x = 1"], "the file declares no model; add `model = samestep.Model(torch=...)`"),
        (["import samestep", "model = 5"], "model is int, not a samestep.Model"),
        (["import samestep", "other = samestep.Model()"], "unknown model 'model'"),
        (["import samestep", "model = samestep.Model()"], "has no model for torch; add `torch=` to its samestep.Model"),
        (["import samestep", "model = samestep.Model(torch=lambda: 5)"], "returned int, not a torch.nn.Module"),
        (
            ["import samestep, torch", "model = samestep.Model(torch=torch.nn.Linear(6, 2))"],
            "torch= is a module; give the function that builds it",
        ),
        (
            ["import samestep, torch", "model = samestep.Model(torch=lambda: torch.nn.LSTM(6, 2))"],
            "the model returns tuple of 0, 1.0, 1.1; return a tensor, or a mapping or an object with `logits`",
        ),
        (
            [
                "import samestep, torch",
                "class Net(torch.nn.Linear):",
                "    def forward(self, x):",
                "        return {'logits': super().forward(x), 'aux_loss': x.mean(), 'loss': None}",
                "model = samestep.Model(torch=lambda: Net(6, 2))",
            ],
            "the model returns `aux_loss` next to its logits, which no strategy would train on; leave it out",
        ),
        (
            [
                "import samestep, torch",
                "model = samestep.Model(torch=lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(6, 2)))",
            ],
            "has torch.nn.utils.spectral_norm, and torch copies no module that has it; use torch.nn.utils.parametrizations.",
        ),
        (["import samestep", "model = samestep.Model(torch=lambda: 1 / 0)"], "ZeroDivisionError: division by zero"),
        (
            ["import samestep, torch", "model = samestep.Model(torch=lambda: torch.nn.Linear(5, 2))"],
            "the forward pass of torch.float64 [2, 6] failed: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        ),
        (
            [
                "import samestep, torch",
                "class Net(torch.nn.Linear):",
                "    def forward(self, x):",
                "        raise RuntimeError('\"pool\" not implemented for \\'Double\\'')",
                "model = samestep.Model(torch=lambda: Net(6, 2))",
            ],
            "steps are checked in float64, in which the framework lacks this operation: use another one, or samestep record",
        ),
        (
            [
                "import samestep, torch",
                "model = samestep.Model(torch=lambda: torch.nn.Linear(6, 3), loss='mean_squared_error')",
            ],
            "mean_squared_error takes outputs shaped like the targets; for 2 examples the model returns [2, 3]",
        ),
        (
            ["import samestep, torch", "model = samestep.Model(torch=lambda: torch.nn.Linear(6, 3), loss='mse')"],
            "unknown loss 'mse'",
        ),
        (
            [
                "import samestep, torch",
                "build = lambda: torch.nn.Linear(6, 2)",
                "model = samestep.Model(torch=build, loss='mean_squared_error', metric='mse')",
            ],
            "unknown metric 'mse'",
        ),
        (
            [
                "import samestep, torch",
                "build = lambda: torch.nn.Linear(6, 2)",
                "model = samestep.Model(torch=build, loss='mean_squared_error', metric=lambda o, t: o - t)",
            ],
            "the metric returns ndarray, not one number for all examples",
        ),
    ],
)
def test_a_file_that_is_wrong_is_told_in_one_line(
    launcher: Launcher, tmp_path: Path, lines: list[str], message: str
) -> None:
    (tmp_path / "net.py").write_text("\n".join(lines))
    assert message in told(launcher, "torch:ddp", model=str(tmp_path / "net.py"), data=f"{ZOO}:points")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"blocks.*.upp": "column"}, "unknown linear layer 'blocks.*.upp'"),
        ({"blocks.*.up": "columns"}, "unknown way to cut a layer 'columns'. Did you mean 'column'?"),
    ],
)
def test_a_tensor_plan_that_names_nothing(
    launcher: Launcher, tmp_path: Path, plan: dict[str, str], message: str
) -> None:
    (tmp_path / "net.py").write_text(
        f"import samestep, sys\nsys.path.insert(0, {str(ZOO.parent)!r})\nimport torch_zoo\n"
        f"model = samestep.Model(torch=torch_zoo.gpt, tensor_plan={plan!r})"
    )
    assert message in told(launcher, "torch:tp", model=str(tmp_path / "net.py"), data=f"{ZOO}:tokens")


def test_a_tensor_plan_that_does_not_divide(launcher: Launcher) -> None:
    message = told(launcher, "torch:tp", **own("MASKED") | {"devices": 3})
    assert "hidden/kernel [8, 16] does not split into 3 equal parts along dimension 1; use a tensor axis" in message


@pytest.mark.skipif(torch_has_cuda(), reason="needs a machine without a GPU")
def test_a_model_that_needs_a_gpu(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import samestep, torch\nmodel = samestep.Model(torch=lambda: torch.nn.Linear(6, 2).cuda())"
    )
    message = told(launcher, "torch:ddp", model=str(tmp_path / "net.py"), data=f"{ZOO}:points")
    assert re.search(r"torch= failed: \w+: .*(CUDA|NVIDIA).* \(net.py:2 `model = .*\.cuda\(\)\)`\)", message)


def test_what_is_wrong_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line it is one line and exit code 2."""
    (tmp_path / "net.py").write_text("import samestep\nprint('loud')\nmodel = samestep.Model(torch=lambda: 5)")
    line = "run torch:ddp --model net.py --data torch_zoo.py:points --devices 2".replace("torch_zoo.py", str(ZOO))
    done = subprocess.run(
        [sys.executable, "-m", "samestep", *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "returned int, not a torch.nn.Module" in " ".join(done.stderr.split()) and "loud" not in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["net.py"]


def test_what_a_model_prints_goes_to_the_logs(
    run_cell: RunCell, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(
        "import samestep, torch\nprint('loud')\n"
        "model = samestep.Model(torch=lambda: torch.nn.Linear(6, 2), loss='mean_squared_error')"
    )
    named = {"model": str(tmp_path / "net.py"), "data": f"{ZOO}:points", "out": str(tmp_path / "run")}
    run_cell("torch:single", "digits-mlp", **named)
    assert "loud" not in "".join(capfd.readouterr())
    assert "loud" in (tmp_path / "run" / "rank-0.log").read_text()


def test_images_of_bytes_are_taken_for_ids(launcher: Launcher, tmp_path: Path) -> None:
    images = np.zeros((60, 1, 8, 8), np.uint8)
    pairs = {"inputs": images, "targets": np.arange(60) % 10}.items()
    names = {f"{part}_{kind}": array for part in ("train", "test") for kind, array in pairs}
    np.savez(tmp_path / "a.npz", **names)
    message = told(launcher, "torch:ddp", model=f"{ZOO}:RESNET", data=str(tmp_path / "a.npz"))
    assert "(whole numbers are ids; make images real numbers, as in `inputs / 255`) failed: RuntimeError" in message


def test_targets_out_of_range(launcher: Launcher, tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text(
        "import samestep, torch\n"
        "model = samestep.Model(torch=lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 5)))"
    )
    assert "train_targets goes up to 9" in told(launcher, "torch:ddp", model=str(net), data=f"{ZOO}:images")


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("torch:pp", "it takes one micro-batch after the other"),
        ("torch:hybrid", "it takes one micro-batch after the other"),
        ("torch:dp", "its replicas are threads, which exchange nothing in the forward pass"),
        ("torch:rpc_parameter_server", "its workers meet only at the server"),
        ("torch:ddp+accumulation_steps=2", "--batch-norm sync sees one micro-batch at a time"),
    ],
)
def test_statistics_of_the_whole_batch_are_refused_with_the_reason(launcher: Launcher, cell: str, reason: str) -> None:
    assert reason in told(launcher, cell, batch_norm="sync", **own("RESNET"))


def test_segments_that_are_not_the_model(launcher: Launcher, tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text(
        "import samestep, torch\n"
        "build = lambda: torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 2))\n"
        "model = samestep.Model(torch=build, loss='mean_squared_error', segments={'torch': lambda m: {'0': m[0]}})"
    )
    assert "do not give the result of the forward pass; theirs is of another shape" in told(
        launcher, "torch:pp", model=str(net), data=f"{ZOO}:points"
    )


def test_no_data_and_no_file(launcher: Launcher) -> None:
    assert "needs data; add --data ARRAYS.npz or --data FILE.py:FUNCTION" in told(launcher, "torch:ddp", model=str(ZOO))
    assert "there is no file nowhere.py" in told(launcher, "torch:ddp", model="nowhere.py", data="a.npz")
    assert "names no Python file; give FILE.py or FILE.py:NAME" in told(
        launcher, "torch:ddp", model="net", data="a.npz"
    )


@pytest.mark.parametrize(
    ("model", "fields", "reason"),
    [
        (
            "FACTORED",
            {},
            "has Adafactor, which keeps `row_var`, not shaped like its parameter: no row could gather it",
        ),
        ("KERAS_OPTIMIZER", {}, "has an optimizer for tf only; add one for torch; or choose --optimizer sgd, adamw"),
        ("REGRESSION", {"optimizer": "own"}, "has no optimizer; add `optimizer={'torch': function}`"),
    ],
)
def test_an_optimizer_that_no_row_can_take(launcher: Launcher, model: str, fields: dict[str, str], reason: str) -> None:
    assert reason in told(launcher, "torch:ddp", **fields, **own(model))


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (
            "x.lerp(self.inner(x), 0.5)",
            "does not take --precision bf16: torch.autocast fails in its forward pass (RuntimeError: ",
        ),
        ("x * self.inner.bias", "computes nothing in two bytes: torch.autocast finds no products in it"),
    ],
)
def test_a_forward_pass_that_cannot_be_in_two_bytes(
    launcher: Launcher, tmp_path: Path, forward: str, message: str
) -> None:
    net = tmp_path / "net.py"
    net.write_text(f"""
import samestep, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 6)

    def forward(self, x):
        return ({forward})[:, :2]

model = samestep.Model(torch=Net, loss="mean_squared_error")
""")
    said = told(launcher, "torch:ddp+precision=bf16", model=str(net), data=f"{ZOO}:points")
    assert said.startswith("net ") and message in said
