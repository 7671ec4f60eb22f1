"""A mixture of experts: the oracle's step under every row, its load-balancing loss that of the whole batch."""

import numpy as np
import pytest

from samestep.common.batch import batches
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from tests.cells import SIZED, slow, traced_once
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.parity.test_batch_norm import marked

EXPERTS = f"{SIZED['transformer']}+experts=4+balance=0.1"

BALANCED = [
    *marked("torch:ddp"),
    *slow("torch:single", "torch:fsdp", "tf:mirrored"),
    *slow(
        "torch:c10d+ring=true", "torch:zero1", "torch:zero2", "torch:fsdp+mesh=data=2,shard=2", "torch:ddp+devices=4"
    ),
    *slow("torch:ddp+recompute=true", "torch:deepspeed+zero_stage=2", "torch:deepspeed+zero_stage=3"),
    *slow("tf:single", "tf:multi_worker_mirrored", "tf:mirrored+devices=4", "tf:mirrored+recompute=true"),
]


@pytest.mark.parametrize("cell", BALANCED)
def test_the_load_balancing_loss_is_that_of_the_whole_batch(run_cell: RunCell, cell: str) -> None:
    fields = {} if "mesh" in cell or "devices" in cell or "single" in cell else {"devices": 2}
    dtype = "float32" if "deepspeed" in cell else "float64"
    result = run_cell(cell, traced_once(cell.partition(":")[0], EXPERTS), dtype=dtype, steps=6, **fields)
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("torch:ddp+accumulation_steps=2", "the load-balancing loss depends on the whole batch"),
        ("torch:ddp+compress=int8", "no shard has the tokens that each expert takes of the whole batch"),
        ("torch:ddp+precision=bf16", "rounds the router's scores"),
        ("torch:ddp+compile=true", "needs shapes that are known before a step"),
        ("torch:mp", "which does not have the routers of other stages"),
        ("torch:rpc", "which does not have the routers of other stages"),
        ("torch:pp", "which does not have the routers of other stages"),
        (
            "torch:hybrid+mesh=data=2",
            "needs the tokens .* one micro-batch after the other; give \\+balance=0, or choose torch:ddp",
        ),
        ("torch:dp", "its replicas are threads"),
        ("torch:tp+sequence_parallel=true", "does not cut mixtures of experts"),
        ("tf:parameter_server", "its workers do not wait for each other"),
        ("tf:central_storage", "its replicas share one copy of each variable"),
    ],
)
def test_where_a_load_balancing_loss_cannot_be_had(cell: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse(Cell.parse(cell).apply_to(RunConfig(workload=EXPERTS, devices=None if "mesh" in cell else 2)))


def test_a_token_takes_no_more_experts_than_there_are() -> None:
    with pytest.raises(ConfigError, match=r"a token cannot take 5 of 4 experts; give at most \+top_k=4"):
        parse(RunConfig(workload=f"{EXPERTS}+top_k=5"))


def test_the_derivative_is_that_of_the_loss() -> None:
    """Of every parameter along one direction, by central differences; no token lies between two experts."""
    small = "prose-gpt+layers=1+heads=2+width=8+context=8+experts=4+balance=0.5"
    run = parse(RunConfig(workload=small, dtype="float64", batch_size=4))
    program, split = TrainingProgram(run), run.workload.data.load()
    batch = next(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed))
    gradients, draws = program.gradients(batch)[1], np.random.default_rng(0)
    assert gradients.keys() == program.params.keys()
    for name, value in list(program.params.items()):
        direction, losses = draws.normal(size=value.shape), []
        for step in (1e-6, -1e-6):
            program.params[name] = value + step * direction
            losses.append(program.gradients(batch)[0])
        program.params[name] = value
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx((gradients[name] * direction).sum(), abs=1e-7), name
