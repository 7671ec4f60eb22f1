"""A user's CNN in both frameworks, and their GPT: the same step under every row that takes them, in both dtypes and in bf16."""

from pathlib import Path

import pytest

from samestep.common.judging.parity import LOSS_BOUND
from tests.conftest import RunCell

OWN = Path(__file__).parents[1] / "own"
TORCH_ROWS = ("c10d", "dp", "ddp", "zero1", "zero2", "fsdp", "deepspeed", "rpc_parameter_server")
SPLITTING_ROWS = ("mp", "pp", "tp", "rpc", "hybrid+mesh=pipe=2,tensor=2")
TF_ROWS = ("mirrored", "multi_worker_mirrored", "central_storage", "parameter_server", "tpu")
CNN = {"model": f"{OWN / 'both_zoo.py'}:CNN", "data": f"{OWN / 'both_zoo.py'}:images"}
GPT = {"model": f"{OWN / 'torch_zoo.py'}:SPLIT_GPT", "data": f"{OWN / 'torch_zoo.py'}:tokens"}
DTYPES = (*LOSS_BOUND, "bf16")


@pytest.mark.torch
@pytest.mark.tf
def test_a_cnn_in_both_frameworks(run_cell: RunCell) -> None:
    """The rows of TensorFlow have the weights of the torch model, and take its steps."""
    check(run_cell, "tf:mirrored", CNN, "float64")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", TORCH_ROWS)
def test_a_cnn_under_the_rows_of_torch(run_cell: RunCell, row: str, dtype: str) -> None:
    check(run_cell, f"torch:{row}", CNN, dtype)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", TF_ROWS)
def test_a_cnn_under_the_rows_of_tensorflow(run_cell: RunCell, row: str, dtype: str) -> None:
    check(run_cell, f"tf:{row}", CNN, dtype)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [*TORCH_ROWS, *SPLITTING_ROWS])
def test_a_gpt_with_segments_and_a_tensor_plan(run_cell: RunCell, row: str, dtype: str) -> None:
    check(run_cell, f"torch:{row}", GPT, dtype)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.tf
def test_what_two_bytes_do_at_a_mad_rate_is_not_blamed_on_the_port(run_cell: RunCell) -> None:
    """Adam's first step multiplies the loss by thirty, and turns with the sign of every gradient that rounding hides."""
    fields = {"optimizer": "adamw", "learning_rate": 0.5, "devices": 2, **CNN}
    result = run_cell("tf:mirrored+precision=bf16", "digits-mlp", **fields)
    assert result.parity.passed is False
    assert result.parity.reason.endswith("; without --precision its first 5 steps are torch:single's")


def check(run_cell: RunCell, cell: str, own: dict[str, str], dtype: str) -> None:
    if "deepspeed" in cell and dtype == "float64":
        pytest.skip("DeepSpeed trains in float32 at most")
    devices = {} if "mesh" in cell else {"devices": 2}
    numbers = {} if dtype == "bf16" else {"dtype": dtype}
    result = run_cell(f"{cell}+precision=bf16" if dtype == "bf16" else cell, "digits-mlp", **numbers, **devices, **own)
    assert result.parity.passed, result.parity.reason
    assert result.parity.reference == "torch:single"
