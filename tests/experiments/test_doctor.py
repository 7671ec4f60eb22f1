"""`samestep doctor`: what is here, what would be run on GPUs, and the table of what was, on a device that is made up."""

import json
import os
from pathlib import Path

import pytest

from samestep.common.catalog import framework_info
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments import doctor
from samestep.experiments.doctoring import checks, gpu_report
from samestep.experiments.doctoring.checks import Gpu
from samestep.experiments.printing.formats import write
from tests.lent import lend

H100 = Gpu("NVIDIA H100 80GB HBM3", 80 * 10**9)


def test_without_a_gpu_it_is_one_line_with_exit_code_3() -> None:
    with pytest.raises(
        Unavailable, match=r"PyTorch and TensorFlow see no GPU; on CPU cores `samestep compare`"
    ) as raised:
        doctor.prove({"torch": (), "tf": ()}, Path("gpu-report.json"), "github")
    assert raised.value.exit_code == 3


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"-o .*nowhere/gpu\.json cannot be written"):
        doctor.prove({"torch": (H100,)}, tmp_path / "nowhere" / "gpu.json", "github")


def test_every_row_of_a_framework_with_gpus_is_checked_in_every_precision_that_it_takes() -> None:
    alone = checks.list_checks({"torch": (H100,), "tf": ()})
    assert {cell.strategy for cell in alone} == {*framework_info("torch").strategies}
    assert {cell.framework for cell in alone} == {"torch"}
    assert [str(cell) for cell in alone if cell.strategy == "ddp"] == [
        "torch:ddp",
        "torch:ddp+precision=bf16",
        "torch:ddp+precision=fp16",
        "torch:ddp+devices=2+dtype=float64",
    ]
    pair = [str(cell) for cell in checks.list_checks({"torch": (H100, H100)}) if cell.strategy == "ddp"]
    assert pair[3:] == [
        "torch:ddp+devices=2",
        "torch:ddp+devices=2+precision=bf16",
        "torch:ddp+devices=2+precision=fp16",
    ]


@pytest.mark.parametrize(
    ("name", "memory", "title"),
    [
        ("NVIDIA H100 80GB HBM3", 80e9, "H100-SXM5-80GB"),
        ("NVIDIA GH200 96GB", 96e9, None),
        ("NVIDIA A100-SXM4-80GB", 80e9, "A100"),
        ("NVIDIA GeForce RTX 4090", 24e9, None),
    ],
)
def test_the_rates_of_a_gpu_are_those_of_the_machine_file_that_names_it(
    name: str, memory: float, title: str | None
) -> None:
    machine = Gpu(name, int(memory)).machine
    assert machine is None if title is None else machine is not None and title in machine.title


@pytest.mark.torch
def test_what_ran_elsewhere_than_on_the_gpu_and_what_did_not_run_is_said(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(launcher, monkeypatch)
    cells = ["torch:single", "torch:fsdp+precision=bf16", "torch:dp", "torch:tp+devices=3"]
    monkeypatch.setattr(checks, "list_checks", lambda gpus: [Cell.parse(cell) for cell in cells])
    monkeypatch.setattr(checks, "WORKLOAD", "prose-gpt+layers=1+width=16+heads=2+context=8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    assert doctor.prove({"torch": (H100,)}, tmp_path / "gpu-report.json", "github") == 0
    told = capsys.readouterr().out
    assert "torch sees NVIDIA H100 80GB HBM3 (74.5 GiB)." in told
    assert "on CPU cores, since each rank has to have a GPU: torch:single, torch:fsdp+precision=bf16," in told
    assert "torch:tp+devices=3 was not possible" in told
    report = json.loads((tmp_path / "gpu-report.json").read_text())
    single, fsdp, threads = report["rows"]
    assert single["status"] == fsdp["status"] == "same step"
    assert single["repeats_bit_for_bit"] is True
    assert single["is_on_gpu"] is False
    assert single["allocated_peak_bytes"] is None
    assert single["state_bytes"] == single["predicted_state_bytes"] < single["predicted_peak_bytes"]
    assert threads["predicted_peak_bytes"] is None  # nobody predicts what activations its replicas keep
    assert single["advised_step_seconds"] is None  # which is about two bytes
    assert 0 < fsdp["advised_step_seconds"] < 0.1
    assert report["gpus"] == {"torch": [{"name": H100.name, "memory_bytes": H100.memory_bytes}]}
    assert list(report["not_run"]) == [cells[3]]


@pytest.mark.torch
@pytest.mark.tf
def test_the_overview_names_both_frameworks_and_the_next_step() -> None:
    told = write(doctor._overview({"torch": (H100,), "tf": ()}), "github")
    assert "NVIDIA H100 80GB HBM3" in told
    assert "no GPU" in told
    assert "samestep doctor --gpu" in told
    assert f"{len(os.sched_getaffinity(0))} core" in told
    assert gpu_report.say_gpus(()) == "no GPU"
