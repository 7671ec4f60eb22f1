"""Two experts that are exactly as likely: every mirror takes the first ones, on one device and on several."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from samestep.common.runtime.state_file import read_state, write_state
from tests.cells import SIZED, slow, traced_once
from tests.conftest import RunCell
from tests.parity.test_batch_norm import marked

EXPERTS = "+experts=4+top_k=2"
ROWS = [*marked("torch:single", "torch:ep", "tf:expert")]


def tied(cell: str) -> str:
    """A workload with experts, as a row takes it."""
    return f"{traced_once(cell.partition(':')[0], SIZED['transformer'])}{EXPERTS}"


def begin(run_cell: RunCell, cell: str, out: Path) -> None:
    """Leaves a state that a run of a cell can go on from."""
    fields = {"dtype": "float64", "optimizer": "sgd", "parity": False, "keep_state": True}
    run_cell("numpy:oracle", tied(cell), steps=1, out=str(out), **fields)


@pytest.mark.parametrize("cell", ROWS)
def test_of_experts_that_are_as_likely_a_token_takes_the_first(run_cell: RunCell, tmp_path: Path, cell: str) -> None:
    """All columns of each router are one column: all experts are as likely for each token, and the first two learn alone."""
    fields = {"dtype": "float64", "devices": 1 if cell.endswith("single") else 2, "optimizer": "sgd"}
    begun, out = tmp_path / "begun", tmp_path / "run"
    begin(run_cell, cell, begun)
    state = read_state(begun)
    params = {
        name: np.repeat(value[:, :1], value.shape[1], axis=1) if "router" in name else value
        for name, value in state.params.items()
    }
    slots = {slot: {name: np.zeros_like(value) for name, value in kept.items()} for slot, kept in state.slots.items()}
    write_state(begun, dataclasses.replace(state, params=params, slots=slots))
    result = run_cell(cell, tied(cell), steps=2, start_from=str(begun), keep_state=True, out=str(out), **fields)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    for name in (name for name in params if "/mlp/up/" in name or "/mlp/down/" in name):
        moved = np.abs(read_state(out).params[name] - params[name])
        assert moved[:2].max() > 0
        assert moved[2:].max() == 0


@pytest.mark.parametrize("cell", [*marked("torch:single", "torch:ep"), *slow("tf:expert")])
def test_a_tie_that_float32_turns_is_told_as_a_kink(run_cell: RunCell, tmp_path: Path, cell: str) -> None:
    """Columns of a router differ by the last bit of float32, so that its scores do by less than what float32 rounds."""
    fields = {"devices": 1 if cell.endswith("single") else 2, "optimizer": "sgd", "learning_rate": 0.1}
    begun = tmp_path / "begun"
    begin(run_cell, cell, begun)
    state = read_state(begun)
    columns = (1 + np.arange(4) * 2.0**-23).astype(np.float32)
    params = {
        name: (np.repeat(value[:, :1], value.shape[1], axis=1) * columns if "router" in name else value).astype(
            np.float32
        )
        for name, value in state.params.items()
    }
    slots = {slot: {name: np.zeros_like(params[name]) for name in kept} for slot, kept in state.slots.items()}
    write_state(begun, dataclasses.replace(state, params=params, slots=slots))
    result = run_cell(cell, tied(cell), steps=3, start_from=str(begun), dtype="float32", **fields)
    assert result.parity.passed, result.parity.reason
    assert result.parity.is_amplified
    assert "tokens between two experts within rounding (a kink): " in result.parity.reason
