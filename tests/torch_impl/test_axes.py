"""Axes of a mesh together: every pair of them that a row takes is the same step, keeps and sends what was predicted."""

import itertools

import pytest

from samestep.common.costs.pipeline import hybrid
from samestep.common.errors import ConfigError
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from samestep.common.workload.pipeline_schedule import SCHEDULES
from tests.cells import SIZED
from tests.conftest import RunCell
from tests.torch_impl.ledgers import by_name, bytes_of, obeys_its_law

pytestmark = pytest.mark.torch

QUICK = {"steps": 5, "dtype": "float64", "optimizer": "adamw", "devices": None}
COUNTED = f"{SIZED['transformer']}+dropout=0.1+tied=true+ignored=0.3"
"""Keys of dropout, both users of the table of tokens, and the number of targets that count are of the whole batch."""
PAIRS = [
    ("torch:hybrid", "pipe=2,context=2"),
    ("torch:fsdp+attention_exchange=ring", "shard=2,context=2"),
    ("torch:hybrid+shard_optimizer=true", "pipe=2,data=2"),
    *(
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (
            *itertools.product(
                ("torch:hybrid+attention_exchange=ring", "torch:hybrid+attention_exchange=gather"),
                (
                    *("context=4", "data=2,context=2", "shard=2,context=2", "context=2,tensor=2", "pipe=2,context=2"),
                    "pipe=2,context=2,tensor=2",
                ),
            ),
            ("torch:fsdp+attention_exchange=gather", "data=2,shard=2,context=2"),
            ("torch:zero2+attention_exchange=ring", "shard=2,context=2"),
            ("torch:fsdp", "shard=2,context=2"),
            ("torch:hybrid+shard_optimizer=true", "data=4"),
            ("torch:hybrid+shard_optimizer=true", "data=2,tensor=2"),
            ("torch:hybrid+shard_optimizer=true", "data=2,context=2"),
            ("torch:hybrid+shard_optimizer=true", "pipe=2,data=2,tensor=2"),
            ("torch:hybrid+shard_optimizer=true", "pipe=2,data=4"),
            ("torch:hybrid", "context=2"),
            ("torch:hybrid", "context=4"),
            ("torch:hybrid", "data=2,context=2"),
            ("torch:hybrid", "shard=2,context=2"),
            ("torch:hybrid", "context=2,tensor=2"),
            ("torch:hybrid", "data=2,shard=2"),
            ("torch:hybrid", "pipe=2,data=2,shard=2"),
            ("torch:hybrid", "pipe=2,shard=2,tensor=2"),
            ("torch:hybrid", "pipe=2,data=2,context=2"),
            ("torch:hybrid", "pipe=2,context=2,tensor=2"),
            ("torch:hybrid", "pipe=2,context=2,shard=2"),
            ("torch:hybrid", "context=2,shard=2,tensor=2"),
            ("torch:hybrid", "data=2,context=2,shard=2"),
            ("torch:fsdp", "data=2,context=2"),
            ("torch:fsdp", "context=4"),
            ("torch:fsdp", "data=2,shard=2,context=2"),
            ("torch:zero2", "shard=2,context=2"),
        )
    ),
]


WITH_EXPERTS = [
    ("torch:hybrid", "pipe=2,expert=2"),
    ("torch:fsdp", "shard=2,expert=2"),
    *(
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (
            ("torch:tp", "tensor=2"),
            ("torch:hybrid", "expert=2"),
            ("torch:hybrid", "expert=2,tensor=2"),
            ("torch:hybrid", "tensor=2,expert=2"),
            ("torch:hybrid", "data=2,expert=2"),
            ("torch:hybrid", "shard=2,expert=2"),
            ("torch:hybrid", "context=2,expert=2"),
            ("torch:hybrid", "data=2,expert=2,tensor=2"),
            ("torch:hybrid", "pipe=2,data=2,expert=2"),
            ("torch:hybrid", "pipe=2,expert=2,tensor=2"),
            ("torch:hybrid", "pipe=2,shard=2,expert=2"),
            ("torch:hybrid", "shard=2,expert=2,tensor=2"),
            ("torch:hybrid+microbatches=2", "data=2,shard=2,expert=2"),
            ("torch:fsdp", "data=2,expert=2"),
            ("torch:fsdp", "data=2,shard=2,expert=2"),
            ("torch:fsdp+attention_exchange=ring", "context=2,expert=2"),
            ("torch:hybrid+attention_exchange=gather", "context=2,expert=2"),
            ("torch:fsdp", "shard=2,context=2,expert=2"),
            ("torch:fsdp", "shard=3,expert=2"),
            ("torch:zero2", "shard=2,expert=2"),
            ("torch:tp", "tensor=4"),
        )
    ),
]


@pytest.mark.parametrize(("cell", "mesh"), PAIRS)
def test_axes_together_are_the_same_step_and_obey_their_laws(run_cell: RunCell, cell: str, mesh: str) -> None:
    result = run_cell(cell, COUNTED, mesh=mesh, **QUICK)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    obeys_its_law(result)


@pytest.mark.parametrize(("cell", "mesh"), WITH_EXPERTS)
@pytest.mark.parametrize("style", ["gpt", pytest.param("llama", marks=pytest.mark.slow)])
def test_experts_compose_with_axes(run_cell: RunCell, cell: str, mesh: str, style: str) -> None:
    """Every token takes every expert, so that each pass sends and keeps as much as was predicted ahead of it."""
    workload = f"{COUNTED}+experts=4+top_k=4+style={style}+balance={0.1 if 'hybrid' not in cell else 0}"
    result = run_cell(cell, workload, mesh=mesh, **QUICK)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    obeys_its_law(result)


@pytest.mark.parametrize(
    ("cell", "mesh"),
    [
        ("torch:fsdp", "shard=2,expert=2"),
        pytest.param("torch:hybrid+microbatches=2", "pipe=2,expert=2", marks=pytest.mark.slow),
        pytest.param("torch:hybrid", "expert=2,tensor=2", marks=pytest.mark.slow),
    ],
)
def test_a_router_that_spreads_tokens_unevenly_takes_the_same_step(run_cell: RunCell, cell: str, mesh: str) -> None:
    result = run_cell(cell, f"{COUNTED}+experts=4+balance=0", mesh=mesh, **QUICK | {"optimizer": "sgd"})
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())


@pytest.mark.parametrize(
    ("cell", "mesh"),
    [
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (
            ("torch:hybrid+schedule=1f1b+microbatches=2", "pipe=2,context=2"),
            ("torch:hybrid", "data=2,context=2,tensor=2"),
            ("torch:fsdp", "shard=2,context=2"),
            ("torch:hybrid+schedule=1f1b+microbatches=2+attention_exchange=ring", "pipe=2,context=2"),
            ("torch:fsdp+attention_exchange=ring", "shard=2,context=2"),
        )
    ],
)
@pytest.mark.parametrize("techniques", [Techniques(accumulation_steps=2, clip_norm=0.1), Techniques(recompute=True)])
def test_techniques_compose_with_axes(run_cell: RunCell, cell: str, mesh: str, techniques: Techniques) -> None:
    result = run_cell(cell, "prose-gpt+layers=4+width=32+context=16", mesh=mesh, techniques=techniques, **QUICK)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)


PIPED = ("pipe=2,data=2", "pipe=2,shard=2", "pipe=2,tensor=2")
# DualPipeV takes a forward and a backward pass as one, and hands on what both end with behind what both exchange inside.
ORDERED = [each for each in itertools.product(SCHEDULES, PIPED) if each != ("dualpipev", "pipe=2,tensor=2")]


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "mesh"), ORDERED)
def test_stages_send_in_the_order_that_was_predicted(run_cell: RunCell, schedule: str, mesh: str) -> None:
    """A stage hands its last gradient on before the gradients of its parameters are summed, which may be put off."""
    cell = f"torch:hybrid+schedule={schedule}+microbatches=4"
    result = run_cell(cell, "prose-gpt+layers=4+width=32+context=16", mesh=mesh, **QUICK)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)
    run = parse(result.config)
    for place in range(run.mesh.pipe):
        first = result.processes[place * run.mesh.size // run.mesh.pipe]
        assert first.sends == hybrid(run, "gloo", place).sends


@pytest.mark.slow
@pytest.mark.parametrize("mesh", PIPED)
@pytest.mark.parametrize("schedule", [name for name, each in SCHEDULES.items() if not each.delays_weights])
def test_stages_that_are_computed_again_keep_what_was_predicted(run_cell: RunCell, schedule: str, mesh: str) -> None:
    """The micro-batches in flight are those ahead of a backward pass of the stage that is computed again."""
    cell = f"torch:hybrid+schedule={schedule}+microbatches=4+recompute=true"
    result = run_cell(cell, "prose-gpt+layers=4+width=32+context=16", mesh=mesh, **QUICK)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["heads", "ring"])
@pytest.mark.parametrize("schedule", [name for name, each in SCHEDULES.items() if each.stages_per_rank > 1])
def test_stages_of_a_rank_exchange_under_every_schedule(run_cell: RunCell, schedule: str, exchange: str) -> None:
    cell = f"torch:hybrid+schedule={schedule}+microbatches=4+attention_exchange={exchange}"
    result = run_cell(cell, "prose-gpt+layers=4+width=32+context=16", mesh="pipe=2,context=2", **QUICK)
    assert result.parity.passed, result.parity.reason
    assert by_name(result.exchanges) == by_name(result.predicted.exchanges)


@pytest.mark.parametrize(
    ("cell", "mesh", "message"),
    [
        ("torch:hybrid", "context=2,tensor=4", "1 heads do not divide among a context axis of 2"),
        ("torch:fsdp+fixed_order=8", "shard=2,context=2", "leave out the axis context"),
        ("torch:fsdp", "shard=2,tensor=2", "torch:fsdp does not split along it"),
        ("torch:fsdp+attention_exchange=ring", "shard=2", "needs an axis that splits positions, and shard=2 has none"),
        (
            "torch:hybrid+shard_optimizer=true",
            "shard=2,pipe=2",
            "over ranks with the same parameters, and shard=2,pipe=2 has none; add data=2 to --mesh",
        ),
        (
            "torch:hybrid+shard_optimizer=true",
            "data=2,expert=2",
            "on data=2,expert=2 fewer ranks share an expert than the other",
        ),
        (
            "torch:hybrid+shard_optimizer=true",
            "pipe=2",
            "over ranks with the same parameters, and pipe=2 has none; add data=2 to --mesh",
        ),
        (
            "torch:hybrid+attention_exchange=gather",
            "pipe=2",
            "needs an axis that splits positions, and pipe=2 has none",
        ),
    ],
)
def test_what_does_not_compose_is_refused(run_cell: RunCell, cell: str, mesh: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_cell(cell, SIZED["transformer"], mesh=mesh, **QUICK)
