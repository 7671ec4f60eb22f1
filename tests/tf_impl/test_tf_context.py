"""Context parallelism between the replicas of a process: the same step, what each keeps, what it hands over, to the byte."""

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from tests.cells import SIZED, slow, traced_once
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted

pytestmark = pytest.mark.tf

QUICK = {"steps": 4, "dtype": "float64", "optimizer": "adamw"}
SIMPLE = QUICK | {"optimizer": "sgd"}
"""Where it is counted, exchanged or kept otherwise, not updated: of AdamW's many operations a trace takes longest."""
MODEL = traced_once("tf", SIZED["transformer"])
FEATURES = "+dropout=0.1+tied=true+ignored=0.3"


@pytest.mark.parametrize("mesh", slow("context=2", "context=4", "data=2,context=2", "data=2,context=4"))
def test_it_is_the_same_step_and_obeys_its_law(run_cell: RunCell, mesh: str) -> None:
    result = run_cell("tf:context", MODEL, mesh=mesh, parts=True, **QUICK)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    assert result.conditions.compilations == 0
    keeps_what_was_predicted(result)
    assert result.processes[0].sends == result.predicted.sends
    assert all(row.activations_bytes is not None for row in result.predicted.devices())


@pytest.mark.slow
def test_all_that_is_counted_is_counted_over_the_whole_batch(run_cell: RunCell) -> None:
    techniques = Techniques(accumulation_steps=2, clip_norm=0.1)
    fields = {"mesh": "data=2,context=2", "techniques": techniques, **SIMPLE}
    result = run_cell("tf:context", f"{MODEL}{FEATURES}", **fields)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


GATHER = "tf:context+attention_exchange=gather"


@pytest.mark.parametrize("mesh", ["context=2", *slow("context=4", "data=2,context=2", "data=2,context=4")])
def test_keys_and_values_come_to_the_queries_as_predicted(run_cell: RunCell, mesh: str) -> None:
    result = run_cell(GATHER, MODEL, mesh=mesh, **SIMPLE)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    keeps_what_was_predicted(result)
    assert result.processes[0].sends == result.predicted.sends
    assert all(row.activations_bytes is not None for row in result.predicted.devices())


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["context=4", "data=2,context=2"])
def test_gathered_keys_compose_with_all_that_is_counted(run_cell: RunCell, mesh: str) -> None:
    techniques = Techniques(accumulation_steps=2, clip_norm=0.1)
    result = run_cell(GATHER, f"{MODEL}{FEATURES}", mesh=mesh, techniques=techniques, **QUICK)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


@pytest.mark.slow
def test_heads_need_not_divide_where_keys_come(run_cell: RunCell) -> None:
    """Three heads of a Llama on four replicas, whose keys have one head."""
    workload = "prose-gpt+layers=1+heads=3+key_heads=1+width=24+context=16+style=llama"
    result = run_cell(GATHER, workload, mesh="context=4", **QUICK)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


@pytest.mark.slow
def test_without_an_axis_nothing_is_gathered(run_cell: RunCell) -> None:
    result = run_cell(GATHER, MODEL, mesh="data=2", **QUICK)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


def test_a_ring_is_torchs() -> None:
    with pytest.raises(ConfigError, match=r"unknown attention exchange 'ring'\. Choose from: heads, gather\."):
        parse(Cell.parse("tf:context+attention_exchange=ring").apply_to(RunConfig(workload=MODEL)))


@pytest.mark.parametrize("technique", slow("recompute=true", "precision=bf16"))
@pytest.mark.parametrize("cell", ["tf:context", GATHER])
@pytest.mark.parametrize("style", ["gpt", "llama"])
def test_techniques_change_what_is_kept_and_sent_as_predicted(
    run_cell: RunCell, cell: str, technique: str, style: str
) -> None:
    dtype, workload = ("float32", MODEL) if "precision" in technique else ("float64", SIZED["transformer"])
    result = run_cell(f"{cell}+{technique}", f"{workload}+style={style}", devices=2, **QUICK | {"dtype": dtype})
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


@pytest.mark.parametrize("cell", ["tf:context", GATHER])
def test_examples_that_replicas_do_not_divide_have_their_keys_on_each(run_cell: RunCell, cell: str) -> None:
    """Each replica has positions of all 21, and none has a share of them to evaluate."""
    workload = f"{MODEL}+dropout=0.1"
    result = run_cell(f"{cell}+recompute=true", workload, devices=2, **SIMPLE | {"batch_size": 21})
    assert result.parity.passed, result.parity.reason
    assert all(row.activations_bytes is not None for row in result.predicted.devices())
    keeps_what_was_predicted(result)


def test_what_has_no_equal_parts_is_refused(run_cell: RunCell) -> None:
    with pytest.raises(ConfigError, match="4 heads do not divide among a context axis of 8"):
        run_cell("tf:context", MODEL, devices=8, batch_size=48)
