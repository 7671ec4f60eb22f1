"""The same commands on a machine with a GPU: the same step, on that GPU."""

import pytest

from tests.cells import SIZED
from tests.conftest import RunCell

pytestmark = [pytest.mark.torch, pytest.mark.gpu]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", ["single", "dp", "c10d", "ddp", "zero1", "zero2", "fsdp"])
def test_one_gpu_is_the_same_step(run_cell: RunCell, row: str, dtype: str) -> None:
    result = run_cell(f"torch:{row}", SIZED["transformer"], devices=1, dtype=dtype, optimizer="adamw")
    assert result.parity.passed, result.parity.reason
    assert [row.device for row in result.processes] == ["cuda:0"]
    (held,) = (row.allocated_peak_bytes for row in result.processes)
    assert held is not None
    assert held >= (result.state_bytes or 0)


@pytest.mark.parametrize("row", ["c10d", "ddp", "zero1"])
def test_two_ranks_share_a_gpu_over_gloo(run_cell: RunCell, row: str) -> None:
    result = run_cell(f"torch:{row}", SIZED["transformer"], devices=2, dtype="float64", optimizer="adamw")
    assert result.parity.passed, result.parity.reason
    assert {row.device for row in result.processes} <= {"cuda:0", "cuda:1"}
    assert result.backend == ("nccl" if "cuda:1" in {row.device for row in result.processes} else "gloo")
