"""PyTorch's data-parallel family: what each keeps, what each sends, to the byte."""

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.parent.merge import command
from samestep.common.techniques import Techniques
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.table import resolve
from samestep.experiments.cli.command_line import parse_run
from tests.cells import SIZED, slow
from tests.conftest import RunCell
from tests.torch_impl.ledgers import by_name, bytes_of, obeys_its_law, sent_bytes

pytestmark = pytest.mark.torch

ROWS = ["dp", "c10d", "c10d+ring=true", "ddp", "ddp+bucket_bytes=20000", "zero1", "zero2", "fsdp"]
OPTIONS = ["c10d+ring=true", "ddp+bucket_bytes=20000"]
"""The rows with options; `test_every_row` has the others."""
BIG = "digits-mlp+width=352"
"""More than 1 MB of parameters in float32."""
TWO_BY_TWO = {"mesh": "data=2,shard=2", "devices": None}
COMMAND_WORDS = 2
"""Of the line that repeats a run, before its flags: `samestep run`."""
QUICK = {"steps": 4, "parity": False, "optimizer": "adamw"}


def total_bytes(workload: str, item: int = 4) -> int:
    return num_params(resolve(workload).model) * item


# --- the ledger -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["transformer", *slow(*(model for model in SIZED if model != "transformer"))])
@pytest.mark.parametrize("row", [*OPTIONS, *slow(*(row for row in ROWS if row not in OPTIONS))])
def test_every_model_matches_the_cost_model(run_cell: RunCell, row: str, model: str) -> None:
    obeys_its_law(run_cell(f"torch:{row}", SIZED[model], devices=2, dtype="float64", **QUICK))


@pytest.mark.parametrize("row", ["fsdp", *slow("c10d+ring=true", "zero1", "c10d", "ddp", OPTIONS[1], "zero2")])
def test_a_megabyte_matches_the_cost_model(run_cell: RunCell, row: str) -> None:
    assert total_bytes(BIG) >= 1_000_000
    result = run_cell(f"torch:{row}", BIG, devices=2, **QUICK)
    obeys_its_law(result)
    assert sent_bytes(result) > 0.9 * total_bytes(BIG)


@pytest.mark.parametrize("devices", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 4))])
@pytest.mark.parametrize("row", ["dp", "c10d+ring=true", "zero2", "fsdp", *slow("c10d", "ddp", OPTIONS[1], "zero1")])
def test_any_number_of_devices_matches_the_cost_model(run_cell: RunCell, row: str, devices: int) -> None:
    obeys_its_law(run_cell(f"torch:{row}", "digits-mlp+width=33", devices=devices, **QUICK))


@pytest.mark.parametrize("row", ["fsdp", *slow("zero2")])
def test_a_step_in_pieces_matches_the_cost_model(run_cell: RunCell, row: str) -> None:
    """Gathered for every micro-batch, reduced once; the norm takes an all-reduce of its own."""
    techniques = Techniques(accumulation_steps=2, clip_norm=0.5)
    result = run_cell(f"torch:{row}", SIZED["mlp"], techniques=techniques, dtype="float64", **TWO_BY_TWO)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)
    assert by_name(result.exchanges)["all_gather"][0] == {"zero2": 1, "fsdp": 2}[row] * 2 * 4
    assert by_name(result.exchanges)["reduce_scatter"][0] == 4


# --- parity where the tests of every row do not come ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("row", ["fsdp", "zero2"])
@pytest.mark.parametrize("workload", ["prose-gpt+layers=1+width=16+context=32", SIZED["ranker"]])
def test_hybrid_sharding_is_the_same_step(run_cell: RunCell, row: str, workload: str) -> None:
    result = run_cell(f"torch:{row}", workload, dtype="float64", optimizer="adamw", steps=10, **TWO_BY_TWO)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)


@pytest.mark.parametrize("row", ["fsdp", *slow("zero2")])
def test_uneven_shards_are_the_same_step(run_cell: RunCell, row: str) -> None:
    """10 classes, a width of 33 and a bias of 1, over 3 ranks."""
    for workload in ("digits-mlp+width=33", "flights-ranker+embedding=3+hash_buckets=63+hidden=17"):
        result = run_cell(f"torch:{row}", workload, devices=3, dtype="float64", optimizer="adamw", steps=5)
        assert result.parity.passed, result.parity.reason
        obeys_its_law(result)


@pytest.mark.parametrize("row", ["c10d+ring=true", *slow("c10d", "dp", "zero1", "zero2", "fsdp")])
def test_micro_batches_and_clipping_are_the_same_step(run_cell: RunCell, row: str) -> None:
    techniques = Techniques(accumulation_steps=3, clip_norm=0.5)
    result = run_cell(f"torch:{row}", SIZED["mlp"], devices=2, dtype="float64", techniques=techniques)
    assert result.parity.passed, result.parity.reason


@pytest.mark.parametrize("option", ["c10d+ring=true", "ddp+bucket_bytes=4000"])
def test_options_are_the_same_step(run_cell: RunCell, option: str) -> None:
    result = run_cell(f"torch:{option}", SIZED["transformer"], devices=3, dtype="float64", optimizer="adamw", steps=10)
    assert result.parity.passed, result.parity.reason


# --- what each row is there to show -----------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 4))])
def test_a_ring_takes_2_n_minus_1_messages(run_cell: RunCell, devices: int) -> None:
    result = run_cell("torch:c10d+ring=true", SIZED["mlp"], devices=devices, **QUICK)
    count, size = by_name(result.exchanges)["send"]
    assert count == 2 * (devices - 1)
    chunk = -(-total_bytes(SIZED["mlp"]) // 4 // devices) * 4
    assert size == count * chunk


def test_dp_has_five_exchanges_where_ddp_has_one(run_cell: RunCell) -> None:
    dp, ddp = (run_cell(f"torch:{row}", SIZED["mlp"], devices=4, **QUICK) for row in ("dp", "ddp"))
    params, examples = total_bytes(SIZED["mlp"]), dp.global_batch_size * 3 // 4
    assert by_name(dp.exchanges) == {
        "scatter_inputs": (3, examples * 64 * 4),
        "broadcast_parameters": (3, 3 * params),
        "gather_outputs": (3, examples * 10 * 4),
        "scatter_output_gradients": (3, examples * 10 * 4),
        "reduce_gradients": (3, 3 * params),
    }
    assert by_name(ddp.exchanges) == {"all_reduce": (1, params)}
    assert 0 < dp.processes[0].measures["master_share"] < 1
    assert dp.emulation == "threads; nn.DataParallel needs two GPUs"
    assert [row.params_bytes for row in dp.processes] == [params, 0, 0, 0]


def test_buckets_are_counted_and_overlap_unless_there_is_only_one(run_cell: RunCell) -> None:
    counts = []
    for cap in (1000, 20_000, 100_000_000):
        result = run_cell(f"torch:ddp+bucket_bytes={cap}", SIZED["transformer"], devices=2, **QUICK)
        obeys_its_law(result)
        counts.append(by_name(result.exchanges)["all_reduce"][0])
        measures = result.processes[0].measures
        # A single bucket is full with the last gradient. DDP itself counts how long autograd takes to return then.
        assert (measures["overlap_seconds"] > 0) == (counts[-1] > 1)
        assert measures["overlap_seconds"] <= measures["communication_seconds"] > 0
    assert counts[0] > counts[1] > counts[2] == 1
    control = run_cell("torch:c10d", SIZED["transformer"], devices=2, **QUICK).processes[0].measures
    assert control["overlap_seconds"] == 0 < control["communication_seconds"]


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_zero_family_keeps_one_nth(run_cell: RunCell, devices: int) -> None:
    workload = "digits-mlp+layers=13+width=64"
    params = total_bytes(workload)
    kept = {
        row: run_cell(f"torch:{row}", workload, devices=devices, **QUICK) for row in ("ddp", "zero1", "zero2", "fsdp")
    }
    share = {
        row: [max(column) / params for column in zip(*bytes_of(result.processes), strict=True)]
        for row, result in kept.items()
    }
    nearly = pytest.approx(1 / devices, rel=0.05)
    assert share["ddp"] == [1, 1, 1, 2]
    assert share["zero1"][:3] == [1, 1, 1]
    assert share["zero1"][3] / 2 == nearly
    for row in ("zero2", "fsdp"):
        assert [share[row][0], share[row][2], share[row][3] / 2] == [nearly] * 3
    assert share["zero2"][1] > 1 + 1 / devices  # whole parameters beside its shards
    assert share["fsdp"][1] < 1 / devices + 0.4  # three of thirteen blocks at a time
    assert sum(row.optimizer_bytes for row in kept["zero1"].processes) == 2 * params


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--strategy ddp --bucket-bytes 0", "--bucket-bytes is 0; give a whole number from 1 up"),
        ("--strategy ddp --bucket-bytes few", "--bucket-bytes is 'few'; give a whole number"),
        ("--strategy ddp --ring", "--ring is an option of torch:c10d, not of torch:ddp"),
        ("--strategy fsdp --mesh data=2,tensor=2", "unknown mesh axis"),
        ("--strategy fsdp --mesh data=2,shard=2 --batch-size 50", "use --batch-size 48 or 52"),
        ("--strategy zero1 --devices 3 --batch-size 50", "use --batch-size 48 or 51"),
        ("--strategy zero1 --mesh data=2,shard=2", "unknown mesh axis"),
    ],
)
def test_a_wrong_request_is_one_line(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(parse_run(line.split(), "run"))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_whole_command_is_printed_with_its_options(run_cell: RunCell) -> None:
    result = run_cell("torch:c10d+ring=true", SIZED["mlp"], devices=2, **QUICK)
    assert "--ring" in result.command
    again = parse_run(result.command.split()[COMMAND_WORDS:], "run")
    assert (again.strategy, again.options) == ("c10d", {"ring": True})
    assert Cell.parse("torch:c10d+ring=true").apply_to(RunConfig()).options == {"ring": True}


@pytest.mark.parametrize(
    "line", ["--strategy fsdp --mesh data=2", "--strategy fsdp --devices 2", "--strategy ddp --bucket-bytes 4000"]
)
def test_the_command_asks_for_the_same_mesh_and_options(line: str) -> None:
    asked = parse_run(line.split(), "run")
    run = parse(asked)
    again = parse_run(command(as_config(run, launch_of(asked))).split()[COMMAND_WORDS:], "run")
    assert parse(again).described() == run.described()
