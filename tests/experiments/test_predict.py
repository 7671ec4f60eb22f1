"""samestep predict: fast, without a framework, what a run would record, and one line for what is impossible."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

import samestep
from samestep.common.catalog import catalogue
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.experiments import predict
from samestep.experiments.advising.prediction import parse_memory, where_it_fits
from samestep.experiments.printing.text import size
from tests.cells import SIZED

ROOT = Path(__file__).parents[2]
GPT3 = {"workload": "gpt3-175b", "weights": "fp16", "backend": "nccl"}
SECONDS = 3.0
"""Three times what every row's takes; of processor time, so that a loaded machine changes little."""

# --- the command ------------------------------------------------------------------------------------------------------

WHOLE = """
import sys
from samestep.__main__ import main
sys.argv = ["samestep", "predict", *sys.argv[1:]]
try:
    main()
finally:
    print(sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--strategy", "torch:fsdp", "--workload", "prose-gpt", "--mesh", "shard=8"),
        ("torch:hybrid", "--workload", "gpt3-175b", "--mesh", "data=64,pipe=8,tensor=8", "--device-memory", "160GiB"),
        ("--workload", "gpt3-175b", "--devices", "96", "--format", "json"),
    ],
    ids=["ours", "giant", "every row"],
)
def test_it_needs_no_framework_no_numpy_and_no_time(arguments: tuple[str, ...], tmp_path: Path) -> None:
    line = [sys.executable, "-c", WHOLE, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(line, env=environment, cwd=tmp_path, stdout=out, stderr=err)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    told = (tmp_path / "err").read_text()
    assert process.returncode == 0, told
    assert "'samestep'" in told
    assert not [name for name in ("torch", "tensorflow", "keras", "jax", "numpy", "scipy") if f"'{name}'" in told]
    assert used.ru_utime + used.ru_stime < SECONDS
    assert not list(tmp_path.glob("runs"))


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ["torch:hybrid", "--mesh", "data=64,pipe=8,tensor=8", "--workload", "gpt3-175b", "--device-memory", "80GiB"],
        ["--devices", "8", "--device-memory", "1MiB"],
    ],
    ids=["one row", "every row"],
)
def test_it_fits_the_screen(
    arguments: list[str], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert predict.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.parametrize("devices", [1, 2])
def test_one_device_is_not_said_to_send(devices: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.main(["torch:fsdp", "--devices", str(devices)]) == 0
    assert ("sent by each of" in capsys.readouterr().out) == (devices > 1)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("ddp", "gradients, optimizer state and activations are at their peaks at once; buffers and"),
        (
            "dp",
            "gradients and optimizer state are at their peaks at once; activations, which are not predicted, buffers and",
        ),
    ],
)
def test_what_is_needed_counts_activations_only_where_they_are_predicted(
    cell: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict.main([f"torch:{cell}", "--devices", "2"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_every_row_is_predicted_or_refused_with_a_reason() -> None:
    found = samestep.predict(workload="prose-gpt", devices=4)
    refused = {cell for cells in found.refused for cell in cells.split(", ")}
    assert [row.cell for row in found.rows] == [
        f"{framework}:{row.name}"
        for framework, row in catalogue()
        if framework != "numpy" and f"{framework}:{row.name}" not in refused
    ]
    assert refused == {"torch:single", "tf:single", "torch:ep", "tf:expert"}  # of one device, or for experts
    along = samestep.predict(workload="gpt3-175b", mesh="pipe=8,tensor=8")
    assert [row.cell for row in along.rows] == ["torch:hybrid"]
    assert "does not split along pipe, tensor" in " ".join(along.refused.values())


def test_programs_get_raw_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--devices", "4", "--device-memory", "200KiB", "--optimizer", "adamw", "--format"]
    found = {}
    for form in ("json", "csv", "junit"):
        assert predict.main([*line, form]) == 0
        found[form] = capsys.readouterr().out
    record = json.loads(found["json"])
    rows = {row["cell"]: row for row in csv.DictReader(io.StringIO(found["csv"]))}
    assert [row["cell"] for row in record["rows"]] == list(rows)
    assert int(rows["torch:ddp"]["needed_bytes"]) == next(
        row["needed_bytes"] for row in record["rows"] if row["cell"] == "torch:ddp"
    )
    assert record["device_memory_bytes"] == 200 * 1024
    assert rows["torch:ddp"]["fits"] == "no"
    assert record["rows"][0]["ledger"]["footprints"][0]["count"] == 4
    cases = {
        case.get("name"): [child.tag for child in case]
        for case in ElementTree.fromstring(found["junit"]).iter("testcase")
    }
    assert cases["torch:ddp"] == ["failure"]
    assert ["skipped"] in cases.values()


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", SIZED)
@pytest.mark.parametrize("cell", ["ddp", "fsdp", "pp", "tp", "zero1"])
def test_it_is_what_a_run_would_record(cell: str, model: str) -> None:
    (row,) = samestep.predict(f"torch:{cell}", workload=SIZED[model], devices=2, batch_size=48).rows
    run = parse(RunConfig(strategy=cell, workload=SIZED[model], devices=2, batch_size=48))
    assert row.ledger == run.strategy.cost(run, "gloo")


def test_options_and_techniques_count() -> None:
    few, many = (
        samestep.predict("torch:pp", workload="synthetic-gpt", devices=2, schedule="1f1b", microbatches=count).rows[0]
        for count in (2, 8)
    )
    assert few.fullest.activations_bytes > many.fullest.activations_bytes
    inside = samestep.predict("torch:pp+schedule=1f1b+microbatches=8", workload="synthetic-gpt", devices=2).rows[0]
    assert inside.ledger == many.ledger
    assert samestep.predict("torch:fsdp", devices=2, clip_norm=1.0) != samestep.predict("torch:fsdp", devices=2)


def test_textbooks_say_nothing_of_what_recomputation_keeps_and_sends() -> None:
    row = samestep.predict("torch:tp+recompute=true", devices=2, workload="prose-gpt").rows[0]
    assert [row.textbook(each) is not None for each in ("state", "sent", "activations")] == [True, False, False]


def test_textbooks_send_nothing_on_a_wire_that_is_not_there() -> None:
    alike = [samestep.predict(cell, devices=2).rows[0] for cell in ("torch:ddp", "tf:mirrored")]
    assert [row.textbook("sent") is None for row in alike] == [row.ledger.sent_bytes_per_step == 0 for row in alike]
    assert [row.textbook("state") for row in alike] == [alike[0].textbook("state")] * 2


def test_weights_in_two_bytes_halve_what_is_sent_and_keep_masters() -> None:
    given = {"workload": "prose-gpt", "devices": 2, "backend": "nccl"}
    whole = samestep.predict("torch:ddp", **given).rows[0]
    half = samestep.predict("torch:ddp", weights="bf16", **given).rows[0]
    assert half.ledger.sent_bytes_per_step == whole.ledger.sent_bytes_per_step / 2
    params = whole.fullest.params_bytes // 4
    held = half.fullest
    assert (held.params_bytes, held.gradients_bytes, held.optimizer_bytes) == (2 * params, 2 * params, 12 * params)


def test_the_backend_decides_what_a_reduce_scatter_sends() -> None:
    over = {
        name: samestep.predict("torch:fsdp", devices=8, workload="prose-gpt", backend=name).rows[0].ledger
        for name in ("gloo", "nccl")
    }
    assert over["gloo"].sends == over["nccl"].sends
    assert over["gloo"].sent_bytes_per_step > 1.3 * over["nccl"].sent_bytes_per_step
    assert samestep.predict("torch:dp", devices=8, batch_size=64).rows[0].backend == "memory"


@pytest.mark.parametrize(
    ("cell", "mesh", "batch_size"),
    [
        ("torch:ddp", "data=100000", 100000),
        ("torch:zero1", "data=100000", 100000),
        ("torch:deepspeed+zero_stage=2", "data=100000", 100000),
        ("torch:deepspeed+zero_stage=3", "data=100000", 100000),
        ("torch:fsdp", "shard=100000", 100000),
        ("torch:fsdp", "data=33333,shard=3", 99999),
        ("torch:hybrid", "data=128,pipe=97,tensor=8", 1536),
        ("torch:hybrid+schedule=interleaved_1f1b", "shard=256,pipe=48,tensor=8", 256 * 48),
        ("tf:dtensor+clients=1000", "data=12500,tensor=8", 12500),
    ],
)
def test_the_largest_meshes_take_no_time(cell: str, mesh: str, batch_size: int) -> None:
    extra = {"microbatches": 48} if "interleaved" in cell else {}
    started = time.process_time()
    (row,) = samestep.predict(cell, mesh=mesh, batch_size=batch_size, **GPT3, **extra).rows
    assert time.process_time() - started < SECONDS
    assert row.num_devices == row.run.num_devices > 90_000
    assert row.needed_bytes > 0


# --- whether it fits --------------------------------------------------------------------------------------------------


def test_a_row_fits_from_the_byte_that_it_needs() -> None:
    (row,) = samestep.predict("torch:fsdp", workload="prose-gpt", devices=8).rows
    activations = row.fullest.activations_bytes
    assert row.fits(row.needed_bytes) == "yes"
    assert row.fits(row.needed_bytes - 1) == row.fits(row.needed_bytes - activations) == "without activations"
    assert row.fits(row.needed_bytes - activations - 1) == "no"


def test_a_giant_that_fits_nowhere_is_told_by_how_much_and_on_how_many_devices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert predict.main(["--workload", "llama-65b", "--devices", "16", "--device-memory", "80GiB"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    found = samestep.predict("torch:fsdp", workload="llama-65b", devices=16).rows[0]
    assert "No strategy fits." in told
    best = min(
        samestep.predict(workload="llama-65b", devices=16).rows,
        key=lambda row: (not row.knows_activations, row.needed_bytes),
    )
    assert f"{best.cell} does not fit in 80.0 GiB: a device needs up to {size(best.needed_bytes)}" in told
    larger = where_it_fits(found, memory := 2 * 2**40)
    assert larger is not None
    assert larger.fits(memory) == "yes"
    assert larger.run.num_devices > found.run.num_devices
    half = samestep.predict("torch:fsdp", workload="llama-65b", devices=larger.run.num_devices // 2).rows[0]
    assert half.fits(memory) != "yes"


def test_where_nothing_helps_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.main(["torch:ddp", "--workload", "gpt3-175b", "--devices", "8", "--device-memory", "80GiB"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "More devices along one axis (up to 100,000) do not make it fit." in told


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("80GiB", 80 * 2**30),
        ("80GB", 80 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("512 MiB", 2**29),
        ("4096B", 4096),
        ("7B", 7),
    ],
)
def test_a_memory_is_read(text: str, count: int) -> None:
    assert parse_memory(text) == count


# --- what is impossible -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "settings", "told"),
    [
        (None, {"device_memory": "lots"}, "--device-memory is 'lots'; give a size, as in 80GiB, 80GB or 512MiB."),
        (None, {"device_memory": "0"}, "--device-memory is '0'; give a size"),
        (None, {"device_memory": "80"}, "--device-memory is '80'; give a size, as in 80GiB, 80GB or 512MiB."),
        (None, {"device_memory": "80gib"}, "--device-memory is '80gib'; give a size"),
        (None, {"backend": "smoke"}, "unknown backend 'smoke'"),
        ("torch:fsdp", {"backend": "grpc"}, "unknown backend of torch:fsdp 'grpc'. Choose from: gloo, nccl."),
        (None, {"weights": "int4"}, "unknown weights 'int4'"),
        ("torch:ddp", {"weights": "bf16", "dtype": "float64"}, "leave out --dtype float64"),
        ("torch:ddp", {"devices": 100_001}, "--devices is 100001; give a whole number from 1 up, at most 100000."),
        ("torch:ddp", {"mesh": "data=200000"}, "--mesh data=200000 has 200000 devices; give at most 100000."),
        ("torch:ddp", {"devices": 2, "mesh": "data=2"}, "--devices 2 and --mesh data=2 both say how many"),
        ("torch:ddp", {"mesh": "tensor=2"}, "torch:ddp does not split along it."),
        ("torch:pp", {"devices": 99, **GPT3}, "99 stages are more than the 98 segments of gpt3-175b"),
        ("torch:tp", {"devices": 7, **GPT3}, "96 heads do not divide among a tensor axis of 7"),
        (
            "torch:hybrid",
            {"mesh": "context=3", "workload": "prose-gpt"},
            "a context axis of 3; give +context= a multiple of 3.",
        ),
        (None, {"mesh": "pipe=2,context=2"}, "no strategy can take it."),
        (None, {"zero_stage": 3}, "--zero-stage is an option of some strategies; name one."),
        (None, {"workload": "gpt5"}, "unknown workload 'gpt5'"),
        (None, {"steps": 3}, "unknown setting 'steps'"),
        ("torch:fsdp", {"workload": "gpt3-175b", "data": "mine.npz"}, "mine.npz"),
        ("torch:ddp", {"workload": "gpt3-175b+heads=7"}, "width 12288 does not divide into 7 heads"),
    ],
)
def test_a_wrong_request_is_one_line(cell: str | None, settings: dict, told: str) -> None:
    with pytest.raises(samestep.ConfigError) as caught:
        samestep.predict(cell, **settings)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mesh_that_is_none_is_refused_before_any_row_is_asked() -> None:
    with pytest.raises(samestep.ConfigError, match=r"^mesh axis 'data' has size 'x'; give a positive integer"):
        samestep.predict(None, mesh="data=x")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--steps", "3"], "--steps"),
        (
            ["torch:ddp", "--steps", "3"],
            "--steps is not a flag of samestep predict; leave it out, or see samestep predict --help.",
        ),
        (["--zero-stage", "3"], "--zero-stage is not a flag of samestep predict without a strategy"),
        (["torch:ddp", "--zero-stage", "3"], "--zero-stage is an option of torch:deepspeed, not of torch:ddp"),
        (["--format", "xml"], "unknown format 'xml'"),
    ],
)
def test_a_flag_of_something_else_is_one_line(arguments: list[str], told: str) -> None:
    with pytest.raises(samestep.ConfigError) as caught:
        predict.main(arguments)
    assert told in str(caught.value)


def test_a_published_model_cannot_be_run() -> None:
    with pytest.raises(
        samestep.ConfigError, match=r"gpt3-175b can only be predicted: samestep predict --workload gpt3-175b"
    ):
        parse(RunConfig(strategy="fsdp", workload="gpt3-175b", devices=2))
