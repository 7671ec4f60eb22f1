"""Every row takes the oracle's step with all exact techniques that it takes, at once."""

import json
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import StrategyInfo
from samestep.common.techniques import Techniques
from tests.cells import SHALLOW, SIZED, every_row, needed, takes, traced_once, usual
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.parity.products import record

EXACT = {
    "accumulation_steps": 2,
    "clip_norm": 0.5,
    "learning_rate_schedule": "cosine",
    "warmup_steps": 3,
    "recompute": True,
}
ROWS = [
    pytest.param(framework, row, id=f"{framework}:{row.name}", marks=getattr(pytest.mark, framework))
    for framework, row in every_row()
]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "row"), ROWS)
def test_all_that_a_row_takes(run_cell: RunCell, framework: str, row: StrategyInfo) -> None:
    techniques = Techniques(**{name: value for name, value in EXACT.items() if name not in row.refuses})
    fields = {"techniques": techniques, "dtype": row.dtypes[-1], "devices": 2 if row.axes else 1}
    result = run_cell(f"{framework}:{row.name}", traced_once(framework, usual(row)), optimizer="adamw", **fields)
    assert result.parity.passed, result.parity.reason
    assert result.conditions.compilations == 0, "a new rate traces nothing anew"
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    record(result)


DEEP = {**SIZED, "transformer": "prose-gpt+layers=3+width=32+context=16"}
"""With more than one inner segment."""
COMPILED = [
    pytest.param("torch:single", marks=[pytest.mark.torch, pytest.mark.slow], id="torch"),  # a compiler of C++ for 20 s
    pytest.param("tf:mirrored", marks=pytest.mark.tf, id="tf"),
]
SWITCHED = [
    pytest.param("torch:ddp", False, 1, marks=pytest.mark.torch, id="ddp"),
    pytest.param("tf:mirrored", True, 4, marks=pytest.mark.tf, id="mirrored"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cell", COMPILED)
def test_a_compiled_step_is_the_same_step(run_cell: RunCell, cell: str) -> None:
    techniques = Techniques(compile=True, clip_norm=0.5, accumulation_steps=2)
    fields = {"dtype": "float64", "devices": 2 if cell == "tf:mirrored" else 1, "techniques": techniques}
    alone = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # without processes that import torch each to compile beside others
    result = run_cell(cell, SHALLOW, environment=alone, optimizer="adamw", **fields)
    assert result.parity.passed, result.parity.reason
    assert result.conditions.compilations == 0, "compiled in the first step, whose seconds stand on their own"
    assert result.compile_seconds is not None
    assert {row.activations_bytes for row in result.predicted.devices()} == {None}, "the compiler decides"


@pytest.mark.parametrize(("cell", "overlap", "pieces"), SWITCHED)
def test_gradients_go_in_pieces_or_together(run_cell: RunCell, cell: str, overlap: bool, pieces: int) -> None:
    fields = {"dtype": "float64", "devices": 2, "techniques": Techniques(overlap=overlap)}
    result = run_cell(cell, SHALLOW, optimizer="sgd", **fields)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    assert [each.count_per_step for each in result.exchanges] == [pieces]


TOGETHER = [
    ("torch:fsdp+recompute=true+accumulation_steps=2+clip_norm=0.5", {"devices": 2}),
    ("tf:mirrored+compile=true+accumulation_steps=2+clip_norm=0.5", {"devices": 2}),
    (
        "torch:hybrid+accumulation_steps=2+clip_norm=0.5+learning_rate_schedule=cosine+microbatches=2",
        {"mesh": "pipe=2,data=2"},
    ),
    ("torch:single+compile=true+recompute=true", {}),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cell", "where"),
    [pytest.param(*each, id=each[0], marks=getattr(pytest.mark, each[0].partition(":")[0])) for each in TOGETHER],
)
def test_what_people_combine(run_cell: RunCell, cell: str, where: dict[str, object]) -> None:
    result = run_cell(cell, DEEP["transformer"], dtype="float64", optimizer="adamw", **where)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    record(result)


@pytest.mark.slow
@pytest.mark.parametrize("technique", ["accumulation_steps", "clip_norm", "recompute"])
@pytest.mark.parametrize(
    ("framework", "row", "model"),
    [
        pytest.param(*p.values, model, id=f"{p.id}-{model}", marks=p.marks)
        for p in ROWS
        for model in DEEP
        if takes(p.values[1], model)
    ],
)
def test_a_technique_costs_what_was_predicted(
    run_cell: RunCell, framework: str, row: StrategyInfo, model: str, technique: str
) -> None:
    if technique in row.refuses:
        pytest.skip(row.refuses[technique])
    fields = {"dtype": row.dtypes[-1], "devices": 2 if row.axes else 1, "steps": 5}
    techniques = Techniques(**{technique: EXACT[technique]})
    result = run_cell(f"{framework}:{row.name}", DEEP[model] + needed(row), techniques=techniques, **fields)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    record(result)


@pytest.mark.torch
@pytest.mark.parametrize("feature", ["", pytest.param("+dropout=0.1", marks=pytest.mark.slow)])
def test_gradients_in_shards_are_gathered_before_a_block_is_computed_again(run_cell: RunCell, feature: str) -> None:
    """Unless something behind its last sum was kept, such as a mask."""
    cell, workload = "torch:tp+sequence_parallel=true+recompute=true", f"{DEEP['transformer']}{feature}"
    result = run_cell(cell, workload, dtype="float64", devices=2, steps=2)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_keeps_what_was_predicted_where_it_computes_again(run_cell: RunCell, schedule: str) -> None:
    """Of its last rank the targets are free before the first block is computed again, if nothing else is in flight."""
    workload = "prose-gpt+layers=6+width=32+context=16"
    result = run_cell(f"torch:pp+schedule={schedule}+recompute=true", workload, devices=2, steps=2)
    keeps_what_was_predicted(result)


@pytest.mark.parametrize("schedule", ["interleaved_zero_bubble", "zbv_zero_bubble", "dualpipev"])
def test_recomputation_in_vain_is_refused(schedule: str) -> None:
    config = RunConfig(workload="prose-gpt+layers=6+width=32", devices=2)
    with pytest.raises(ConfigError, match=f"{schedule} computes the gradients of weights later"):
        parse(Cell.parse(f"torch:pp+schedule={schedule}+recompute=true").apply_to(config))
    assert parse(Cell.parse(f"torch:pp+schedule={schedule}").apply_to(config))


@pytest.mark.torch
def test_the_schedule_is_that_of_torch(run_cell: RunCell, tmp_path: Path) -> None:
    """What `metrics.jsonl` says of every step, against torch's own schedulers."""
    out = tmp_path / "run"
    techniques = Techniques(learning_rate_schedule="cosine", warmup_steps=4)
    shared = {"out": str(out), "parity": False, "dtype": "float64", "steps": 20}
    run_cell("numpy:oracle", SIZED["mlp"], learning_rate=0.25, techniques=techniques, **shared)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rates = [rate for line in lines for rate in line["learning_rates"]]
    assert rates == pytest.approx(torch_rates(0.25, 20, 4), rel=1e-12)


def torch_rates(rate: float, steps: int, warmup: int) -> list[float]:
    """The rates of torch's own schedulers: warm-up, then cosine, which starts with the full rate."""
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    rising = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    falling = CosineAnnealingLR(optimizer, T_max=steps - warmup)
    schedule = SequentialLR(optimizer, [rising, falling], milestones=[warmup])
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates
