"""`--keep-dtypes`: a user's modules see their parameters in two bytes where the file made them so."""

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from tests.conftest import RunCell
from tests.own.catalogue import Kind

pytestmark = pytest.mark.torch


def asked(model: str) -> dict[str, str]:
    return Kind(model, "points", file="repeated_zoo.py", data_file="torch_zoo.py").asked()


@pytest.mark.parametrize(
    ("row", "model"),
    [
        ("ddp", "PARTLY_KEPT"),
        *(pytest.param(row, "KEPT", marks=pytest.mark.slow) for row in ("ddp", "fsdp", "zero1", "zero2")),
        *(pytest.param(row, "OF_LAYERS", marks=pytest.mark.slow) for row in ("dp", "fsdp")),
        *(
            pytest.param(row, "PARTLY_KEPT", marks=pytest.mark.slow)
            for row in ("c10d", "deepspeed", "deepspeed+zero_stage=3", "fsdp", "zero1")
        ),
    ],
)
def test_a_run_is_judged_as_in_two_bytes(run_cell: RunCell, row: str, model: str) -> None:
    result = run_cell(f"torch:{row}+keep_dtypes=true", "digits-mlp", devices=2, steps=6, **asked(model))
    assert result.parity.passed, result.parity.reason
    assert result.arithmetic == "bf16" and (result.parity.max_relative_loss or 0) > 1e-5  # it did round
    predicted = max(each.state_bytes for each in result.predicted.footprints)
    assert max(row.state_bytes for row in result.processes) == predicted
    sent = sum(process.sent_bytes_per_step for process in result.processes)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.01, abs=2048)


@pytest.mark.parametrize(
    ("cell", "model", "told"),
    [
        ("torch:ddp", "REPEATED", "no parameter of repeated_zoo:REPEATED is bfloat16 in its file; leave it out."),
        ("torch:ddp", "OF_HALVES", "is float16, whose gradients vanish without a loss scaler; make it bfloat16."),
        ("torch:ddp", "MOVED", "moves 1.running_mean of repeated_zoo:MOVED, which a cast would lose; make it float32."),
        (
            "torch:ddp",
            "FAILING",
            "does not take --keep-dtypes: its forward pass fails with them (RuntimeError: mat1 and",
        ),
        ("torch:ddp+precision=bf16", "KEPT", "and --precision bf16 both choose a type; leave out one of them."),
        ("torch:ddp+dtype=float64", "KEPT", "--keep-dtypes has parameters in float32; leave out --dtype float64."),
    ],
)
def test_what_cannot_be_kept_is_refused(launcher: Launcher, cell: str, model: str, told: str) -> None:
    request = RunConfig(devices=2, batch_size=48, **asked(model))
    with pytest.raises(ConfigError) as caught:
        parse(launcher.describe(Cell.parse(f"{cell}+keep_dtypes=true").apply_to(request)))
    assert told in str(caught.value)


@pytest.mark.parametrize("row", ["mp", "pp", "tp", "hybrid+mesh=data=2", "rpc", "rpc_parameter_server"])
def test_rows_that_split_a_model_keep_none(row: str) -> None:
    """Their stages would compute in float32, and be judged by the bound of two bytes."""
    request = RunConfig(devices=2, batch_size=48, **asked("OF_LAYERS"))
    with pytest.raises(ConfigError, match="does not take --keep-dtypes: its processes hold parts of a model"):
        parse(Cell.parse(f"torch:{row}+keep_dtypes=true").apply_to(request))
