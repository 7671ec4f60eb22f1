"""Mixed precision: every way of taking a step stays within the rounding that was derived, and sends what was predicted."""

import dataclasses
import math

import pytest

from samestep.common.evidence.roundoff import UNIT_ROUNDOFF, gradient_error, noise_of
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from tests.cells import SIZED
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted

DEEP = "prose-gpt+layers=3+width=32+context=16"
"""With more than one inner segment."""
BF16 = "precision=bf16"
STEPS = ("torch:ddp", "torch:fsdp", "torch:pp", "torch:tp", "torch:rpc", "torch:rpc_parameter_server")
"""One row for each way of taking a step."""


def marked(cells: tuple[str, ...]) -> list[object]:
    return [pytest.param(cell, marks=getattr(pytest.mark, cell.partition(":")[0]), id=cell) for cell in cells]


def computes_in_two_bytes(run_cell: RunCell, cell: str, workload: str, **fields: object) -> None:
    where = {} if "mesh" in fields else {"devices": 2}
    result = run_cell(f"{cell}+{BF16}", workload, **{"optimizer": "adamw", "steps": 8, **where, **fields})
    assert result.parity.passed, result.parity.reason
    assert result.parity.max_relative_loss > UNIT_ROUNDOFF["float32"], "nothing was rounded to two bytes"
    assert "bf16 on CPU cores" in result.emulation
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    for measured, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert [getattr(measured, name) for name in HELD] == [getattr(predicted, name) for name in HELD]
    if cell == "torch:fsdp":
        sent = sum(row.sent_bytes_per_step for row in result.processes)
        assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)


HELD = ("params_bytes", "params_peak_bytes", "gradients_bytes", "optimizer_bytes")


@pytest.mark.parametrize("cell", marked(STEPS))
def test_a_step_in_two_bytes(run_cell: RunCell, cell: str) -> None:
    computes_in_two_bytes(run_cell, cell, SIZED["transformer"])


def test_the_bound_follows_from_the_products() -> None:
    """Three layers of an MLP; and six kernels a block, one of the head, which may be the table of tokens."""
    techniques = Techniques(precision="bf16")
    for workload, products in (("digits-mlp+layers=3", 3), (DEEP, 19), (f"{DEEP}+tied=true", 19)):
        run = parse(RunConfig(workload=workload, techniques=techniques))
        assert gradient_error(run) == pytest.approx(math.sqrt(6 * products) / 256)
        half = dataclasses.replace(run, techniques=Techniques(precision="fp16"))
        assert gradient_error(half) == pytest.approx(math.sqrt(6 * products) / 2048)
        plain = dataclasses.replace(run, techniques=Techniques())
        assert gradient_error(plain) is None
        assert noise_of(plain)[0] < noise_of(half)[0] < noise_of(run)[0]
