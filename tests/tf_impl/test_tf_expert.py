"""Expert parallelism between the replicas of a process: the same step, what each keeps, what it hands over, to the byte."""

import pytest

from samestep.common.errors import ConfigError
from samestep.common.techniques import Techniques
from tests.cells import SIZED, slow, traced_once
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted

pytestmark = pytest.mark.tf

EXPERTS = f"{traced_once('tf', SIZED['transformer'])}+experts=4"
QUICK = {"steps": 4, "dtype": "float64", "optimizer": "adamw"}


@pytest.mark.parametrize("mesh", slow("expert=2", "expert=4", "data=2,expert=2", "data=2,expert=4"))
def test_it_is_the_same_step_and_obeys_its_law(run_cell: RunCell, mesh: str) -> None:
    result = run_cell("tf:expert", EXPERTS, mesh=mesh, parts=True, **QUICK)
    assert result.parity.passed, result.parity.reason
    assert result.conditions.compilations == 0
    assert not result.parity.is_amplified
    keeps_what_was_predicted(result)
    sends_what_was_predicted(result)
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert row.state_bytes == predicted.state_bytes
        assert predicted.activations_bytes is not None


@pytest.mark.parametrize("mesh", slow("expert=2", "data=2,expert=2"))
def test_all_that_is_counted_is_counted_over_the_whole_batch(run_cell: RunCell, mesh: str) -> None:
    """Keys of dropout, both users of the table of tokens, the targets that count, and the norm of the gradient."""
    workload, techniques = f"{EXPERTS}+balance=0.1+dropout=0.1+tied=true+ignored=0.3", Techniques(clip_norm=0.1)
    result = run_cell("tf:expert", workload, mesh=mesh, techniques=techniques, **QUICK | {"optimizer": "sgd"})
    assert result.parity.passed, result.parity.reason
    keeps_what_was_predicted(result)
    sends_what_was_predicted(result)


@pytest.mark.slow
def test_micro_batches_change_what_is_kept_and_sent_as_predicted(run_cell: RunCell) -> None:
    result = run_cell("tf:expert+accumulation_steps=2", f"{EXPERTS}+balance=0", devices=2, **QUICK)
    assert result.parity.passed, result.parity.reason
    keeps_what_was_predicted(result)
    sends_what_was_predicted(result)


@pytest.mark.parametrize(
    ("cell", "workload", "devices", "message"),
    [
        ("tf:expert", SIZED["transformer"], 2, r"has none; choose --workload prose-gpt\+experts=4"),
        ("tf:expert", EXPERTS, 3, "4 experts do not divide among an expert axis of 3"),
        ("tf:expert+recompute=true", f"{EXPERTS}+balance=0", 2, "no gradient for a variable of which each replica"),
    ],
)
def test_what_cannot_be_cut_is_refused(run_cell: RunCell, cell: str, workload: str, devices: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_cell(cell, workload, devices=devices, batch_size=48)
