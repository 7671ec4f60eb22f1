"""The same commands on a machine with a GPU: the same step, on that GPU, whose allocator is asked."""

import pytest

from tests.cells import SIZED
from tests.conftest import RunCell

pytestmark = [pytest.mark.tf, pytest.mark.gpu]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", ["single", "mirrored"])
def test_one_gpu_is_the_same_step(run_cell: RunCell, row: str, dtype: str) -> None:
    result = run_cell(f"tf:{row}", SIZED["transformer"], devices=1, dtype=dtype, optimizer="adamw")
    assert result.parity.passed, result.parity.reason
    assert ["GPU" in row.device for row in result.processes] == [True]
    (held,) = (row.allocated_peak_bytes for row in result.processes)
    assert held is not None
    assert held >= (result.state_bytes or 0)
