"""Ranks that take steps alone take those that NumPy states, and send what was predicted: the weights, once a period."""

from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig
from samestep.common.run import parse
from tests.cells import SHALLOW, SIZED, slow
from tests.conftest import RunCell
from tests.ledgers import keeps_and_sends_what_was_predicted, sends_what_was_predicted
from tests.parity.products import record

DILOCO = "local_steps=4+outer_rate=0.7+outer_momentum=0.9"
CELLS = [
    f"torch:ddp+{DILOCO}+accumulation_steps=2+clip_norm=0.5",
    f"tf:mirrored+{DILOCO}+accumulation_steps=2+clip_norm=0.5",
    "torch:ddp+local_steps=4",
    "tf:multi_worker_mirrored+local_steps=4",
]
"""For more steps than in `test_covered.py`, which has the others."""


def marked(cell: str) -> object:
    return pytest.param(cell, marks=getattr(pytest.mark, cell.partition(":")[0]), id=cell)


@pytest.mark.parametrize("cell", [marked(CELLS[0]), *slow(*CELLS[1:])])
def test_steps_alone_are_the_stated_ones(run_cell: RunCell, cell: str) -> None:
    result = run_cell(cell, SIZED["mlp"], dtype="float64", optimizer="adamw", devices=2, steps=20)
    assert result.parity.passed and not result.parity.is_amplified, result.parity.reason
    assert result.parity.max_relative_loss <= 1e-12
    assert result.conditions.compilations == 0
    keeps_and_sends_what_was_predicted(result)
    record(result)


@pytest.mark.torch
@pytest.mark.tf
def test_a_run_continues_within_a_period_in_the_other_framework(run_cell: RunCell, tmp_path: Path) -> None:
    """Each rank's weights and optimizer state are in the state, and so are the shared weights and their momentum."""
    first, then, cell = tmp_path / "first", tmp_path / "then", "local_steps=3+outer_rate=0.7+outer_momentum=0.9"
    fields = {"dtype": "float64", "devices": 2, "optimizer": "adamw", "keep_state": True}
    run_cell("torch:ddp+local_steps=2+outer_rate=0.7+outer_momentum=0.9", SHALLOW, steps=4, out=str(first), **fields)
    middle = run_cell(f"tf:mirrored+{cell}", SHALLOW, steps=9, start_from=str(first), out=str(then), **fields)
    last = run_cell(f"torch:ddp+{cell}", SHALLOW, steps=12, start_from=str(then), **fields)
    assert middle.parity.passed and last.parity.passed, (middle.parity.reason, last.parity.reason)
    assert max(each.parity.max_relative_loss for each in (middle, last)) <= 1e-12


@pytest.mark.torch
def test_one_step_with_sgd_is_that_of_ddp(run_cell: RunCell) -> None:
    """The mean of one step each is a step by the mean of the gradients, where an update is linear in the gradient."""
    fields = {"dtype": "float64", "devices": 2, "optimizer": "sgd", "steps": 8}
    alone = run_cell("torch:ddp+local_steps=1", SIZED["mlp"], **fields)
    plain = run_cell("torch:ddp", SIZED["mlp"], **fields)
    assert alone.parity.passed and plain.parity.passed
    assert alone.losses == pytest.approx(plain.losses, rel=1e-12)


@pytest.mark.parametrize("row", [marked("torch:ddp"), marked("tf:multi_worker_mirrored")])
def test_what_is_sent_falls_with_the_length_of_a_period(row: str) -> None:
    def predicted(techniques: str) -> float:
        run = parse(
            Cell.parse(f"{row}{techniques}").apply_to(RunConfig(workload="synthetic-mlp+width=1024", devices=4))
        )
        return run.strategy.cost(run, run.strategy.backend).sent_bytes_per_step

    assert predicted("") / predicted("+local_steps=50") == pytest.approx(50, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("model", SIZED)
@pytest.mark.parametrize("techniques", ["local_steps=5", DILOCO])
@pytest.mark.parametrize("row", [marked(row) for row in ("torch:ddp", "tf:mirrored", "tf:multi_worker_mirrored")])
def test_every_model_takes_steps_alone_as_stated(
    run_cell: RunCell, row: str, techniques: str, model: str, devices: int
) -> None:
    result = run_cell(f"{row}+{techniques}", SIZED[model], dtype="float64", devices=devices, steps=20)
    assert result.parity.passed and not result.parity.is_amplified, result.parity.reason
    sends_what_was_predicted(result)
    record(result)
