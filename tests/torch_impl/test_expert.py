"""Expert parallelism: the same step, what each rank keeps, what it sends, to the byte, given how many tokens its experts took."""

import pytest

from samestep.common.errors import ConfigError
from samestep.common.techniques import Techniques
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.table import resolve
from tests.cells import SIZED, slow
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.torch_impl.ledgers import bytes_of, obeys_its_law

pytestmark = pytest.mark.torch

EXPERTS = f"{SIZED['transformer']}+experts=4"
QUICK = {"steps": 6, "dtype": "float64", "optimizer": "adamw", "devices": None}


@pytest.mark.parametrize("mesh", ["expert=2", *slow("expert=4", "data=2,expert=2", "data=2,expert=4")])
def test_it_is_the_same_step_and_costs_what_its_routing_says(run_cell: RunCell, mesh: str) -> None:
    """To the byte, in the observed step; what goes over the wire is of other steps, in which routers decide otherwise."""
    result = run_cell("torch:ep", EXPERTS, mesh=mesh, parts=True, **QUICK)
    assert result.parity.passed, result.parity.reason
    assert result.conditions.compilations == 0
    assert not result.parity.is_amplified
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())
    keeps_what_was_predicted(result)
    sends_what_was_predicted(result)
    tokens, blocks, top_k = 48 * 16, 2, 2
    assert sum(row.measures["expert_tokens"] for row in result.processes) == tokens * blocks * top_k
    of_experts = blocks * 4 * (2 * 32 * 128 + 128 + 32) * 8  # two kernels and two biases each, in float64
    ranks = int(mesh.rpartition("expert=")[2])
    whole = 8 * num_params(resolve(result.workload).model)
    assert {whole - row.params_bytes for row in result.processes} == {of_experts - of_experts // ranks}


@pytest.mark.parametrize("mesh", slow("data=2,expert=2", "expert=4"))
def test_all_that_is_counted_is_counted_over_the_whole_batch(run_cell: RunCell, mesh: str) -> None:
    """Keys of dropout, both users of the table of tokens, the targets that count, and the norm of the gradient.

    Every token takes every expert, so that each step sends as much as the observed one.
    """
    workload = f"{EXPERTS}+top_k=4+balance=0.1+dropout=0.1+tied=true+ignored=0.3"
    result = run_cell("torch:ep", workload, mesh=mesh, techniques=Techniques(clip_norm=0.1), **QUICK)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)


@pytest.mark.parametrize("technique", slow("accumulation_steps=2", "recompute=true", "decayed=matrices"))
def test_techniques_change_what_is_sent_as_predicted(run_cell: RunCell, technique: str) -> None:
    """Of passes nobody says which one sends most, nor of blocks that are kept one at a time which one keeps most."""
    result = run_cell(f"torch:ep+{technique}", f"{EXPERTS}+balance=0", mesh="expert=2", **QUICK)
    assert result.parity.passed, result.parity.reason
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())
    assert result.exchanges == result.predicted.exchanges


@pytest.mark.parametrize(
    ("workload", "fields", "message"),
    [
        (SIZED["transformer"], {"devices": 2}, r"prose-gpt.* has none; choose --workload prose-gpt\+experts=4"),
        (SIZED["mlp"], {"devices": 2}, "an expert axis cuts mixtures of experts, and digits-mlp"),
        (EXPERTS, {"devices": 3}, "4 experts do not divide among an expert axis of 3"),
        (EXPERTS, {"devices": 2, "optimizer": "muon"}, "updates whole matrices, which torch:ep cuts"),
        (EXPERTS, {"mesh": "expert=2,tensor=2"}, "torch:ep does not split along it"),
    ],
)
def test_what_cannot_be_cut_is_refused(run_cell: RunCell, workload: str, fields: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_cell("torch:ep", workload, batch_size=48, **fields)
