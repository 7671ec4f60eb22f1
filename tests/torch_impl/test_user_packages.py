"""Models of packages that are not ours, as they are: built from their configuration, nothing downloaded."""

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import RunCell

pytestmark = [pytest.mark.torch, pytest.mark.slow]
ZOO = Path(__file__).parents[1] / "own" / "packages.py"
DATA = {"GPT2": "tokens", "RESNET18": "pictures"}


def require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'samestep[models]'")


@pytest.mark.parametrize("cell", ["ddp", "c10d", "dp", "zero1", "zero2", "fsdp", "deepspeed", "rpc_parameter_server"])
def test_gpt2_of_transformers(run_cell: RunCell, cell: str) -> None:
    require("transformers")
    check(run_cell, cell, "GPT2")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cell", ["ddp", "fsdp"])
def test_resnet18_of_torchvision(run_cell: RunCell, cell: str) -> None:
    require("torchvision")
    check(run_cell, cell, "RESNET18", batch_norm="sync", batch_size=16, timeout_seconds=120.0)


def check(run_cell: RunCell, cell: str, model: str, **fields: object) -> None:
    asked = {"model": f"{ZOO}:{model}", "data": f"{ZOO}:{DATA[model]}", "devices": 2, "steps": 4, **fields}
    dtype = "float32" if cell == "deepspeed" else "float64"
    result = run_cell(f"torch:{cell}", "digits-mlp", dtype=dtype, **asked)
    assert result.parity.passed, result.parity.reason
    assert result.parity.reference == "torch:single"
