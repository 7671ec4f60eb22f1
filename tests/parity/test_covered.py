"""Every step takes what it can have beside it: each pair of values in one run, instead of the product of all."""

import pytest

from samestep.common.flags import flags
from samestep.common.techniques import Techniques
from samestep.common.workload.table import WORKLOADS, workload_named
from tests.cells import every_row
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.parity.covered import FILE, WAYS, config_of, found
from tests.parity.products import record


def row_name(cell: str) -> str:
    return cell.partition("+")[0]


CELLS = [tuple(line.split()) for line in FILE.read_text().splitlines()]
FIRST = {row_name(cell): cell for _, cell in reversed(CELLS)}
"""Row -> the first of its cells, of which what the seconds of a step go to is found as well."""
ELSEWHERE = {"torch:deepspeed", "precision", "keep_dtypes", "compile", "overlap", "decay_steps", "top_k"}
"""What has tests of its own: in another precision, or compiled, few runs say more than many."""
HELD = ("params_bytes", "params_peak_bytes", "gradients_bytes", "optimizer_bytes", "residuals_bytes")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("model", "cell"),
    [pytest.param(*each, id="-".join(each), marks=getattr(pytest.mark, each[1].partition(":")[0])) for each in CELLS],
)
def test_each_pair_takes_the_same_step_at_the_predicted_cost(run_cell: RunCell, model: str, cell: str) -> None:
    result = run_cell(cell, config_of(model, cell).workload, parts=FIRST[row_name(cell)] == cell)
    assert result.parity.passed, result.parity.reason
    assert result.conditions.compilations == 0, "what is compiled later than in the first step is timed"
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    if cell.startswith(("tf:context", "tf:expert")):  # others are asked for it by their own tests
        assert all(each.activations_bytes is not None for each in result.predicted.devices())
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert [getattr(row, name) for name in HELD] == [getattr(predicted, name) for name in HELD]
    record(result)


def test_every_row_technique_and_feature_is_among_the_cells() -> None:
    features = {name for workload in WORKLOADS for name in flags(workload_named(workload).model)}
    wanted = {f"+{name}=" for name in {*flags(Techniques), *features} - ELSEWHERE}
    wanted |= {f" {framework}:{row.name}+" for framework, row in every_row()} - {f" {name}+" for name in ELSEWHERE}
    text = "".join(f" {cell}+" for _, cell in CELLS)
    assert {each for each in wanted if each not in text} == set()


@pytest.mark.slow
@pytest.mark.parametrize("framework", WAYS)
def test_the_cells_are_those_that_are_found(framework: str) -> None:
    """`python -m tests.parity.covered` writes them anew."""
    assert [each for each in CELLS if each[1].startswith(f"{framework}:")] == found(framework)
