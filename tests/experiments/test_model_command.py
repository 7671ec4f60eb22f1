"""`samestep model`: what is understood of a model, and that what is wrong with a file is one line before anything is left."""

import dataclasses
import json
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.workload.models.description import read_description
from samestep.experiments.model import main, rows_of
from samestep.experiments.printing.formats import write
from samestep.experiments.printing.model_report import Understood, model_document
from tests.own.asked import own
from tests.own.catalogue import Kind
from tests.own.malformed import every
from tests.processes import descendants

pytestmark = pytest.mark.torch
MALFORMED = every()


def understood(launcher: Launcher, asked: dict[str, str]) -> Understood:
    described = launcher.describe(RunConfig(framework="torch", devices=2, batch_size=48, **asked))
    return Understood("torch", read_description(str(described.described)), rows_of(described))


def test_parameters_habits_and_rows(launcher: Launcher) -> None:
    found = understood(launcher, own("RESNET"))
    assert not found.rows["torch:ddp"] and "loses the buffers of torch_zoo:RESNET" in found.rows["torch:dp"]
    text = write(model_document("net.py", [found]), "github")
    assert "Loss: cross_entropy, the mean over targets. Metric: accuracy." in text
    assert "Segments for pipelines: " in text and "Blocks that FSDP gathers one by one: " in text
    elsewhere = write(model_document("net.py", [dataclasses.replace(found, framework="tf")]), "github")
    assert not [word for word in ("pipelines", "FSDP") if word in elsewhere]  # tf has no row for them
    assert "Mixes the examples of a batch: 1, 4.norm1, 4.norm2, 5.norm1, 5.norm2." in text
    record = json.loads(write(model_document("net.py", [found]), "json"))
    assert record["frameworks"]["torch"]["loss"] == "cross_entropy"
    assert {row["row"] for row in record["rows"] if row["takes_it"]} >= {"torch:ddp", "torch:fsdp", "torch:pp"}


def test_several_outputs_and_what_the_loss_does_not_read(launcher: Launcher) -> None:
    found = understood(launcher, Kind("DATACLASS", "classes").asked())
    text = write(model_document("net.py", [found]), "github")
    assert "It returns several tensors, all of which go into its loss." in text
    assert [line for line in text.splitlines() if "no gradient" in line and "unread/kernel" in line]
    assert "hands one tensor from its last stage to the loss" in found.rows["torch:pp"]


@pytest.mark.slow
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = own("DROPOUT")
    assert main([asked["model"], "--data", asked["data"]]) == 0
    assert "Random: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=() if n % 16 == 0 else pytest.mark.slow) for n in range(len(MALFORMED))],
)
def test_a_malformed_file_is_one_line(launcher: Launcher, tmp_path: Path, number: int) -> None:
    (file := tmp_path / "net.py").write_text(MALFORMED[number])
    launcher.warm(["torch"])
    before = descendants()
    asked = RunConfig(devices=2, batch_size=24, model=str(file), data=f"{file}:load")
    with pytest.raises(ConfigError) as caught:
        parse(launcher.describe(Cell.parse("torch:ddp").apply_to(asked)))
    (line,) = str(caught.value).splitlines()
    assert "net" in line and len(line) < 500 and caught.value.exit_code == 2
    assert descendants() <= before


def test_there_are_a_hundred_of_them() -> None:
    assert len(set(MALFORMED)) == len(MALFORMED) == 100
