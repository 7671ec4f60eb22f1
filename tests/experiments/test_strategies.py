"""What the commands print: the catalogue, `--help`, the columns of a comparison."""

import dataclasses
import sys

import pytest

from samestep.common.catalog import catalogue
from samestep.common.workload.table import WORKLOADS
from samestep.experiments import compare, run, strategies
from samestep.experiments.tables import comparison, devices
from samestep.experiments.text import github
from tests.conftest import RunCell

NAMES = [f"{framework}:{row.name}" for framework, row in catalogue()]


def test_the_catalogue_names_every_row_in_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert strategies.main([]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    for table in (first, second):
        assert [line.split()[1].rstrip(",") for line in table.splitlines()[2:]] == NAMES


@pytest.mark.parametrize("width", [100, 120, 200])
def test_on_a_terminal_the_catalogue_fits(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert strategies.main([]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    assert all(name in printed for name in NAMES)


def test_a_table_is_cut_where_it_is_widest() -> None:
    rows = [["torch:ddp", "a few words", "many words " * 20]]
    wrapped = github(["strategy", "few", "many"], rows, 60).splitlines()
    assert 50 < max(map(len, wrapped)) <= 60
    assert wrapped[2].startswith("| torch:ddp  | a few words | many words many words")
    assert " ".join(" ".join(line.split("|")[3] for line in wrapped[2:]).split()) == rows[0][2].strip()
    assert len(github(["strategy", "few", "many"], rows).splitlines()) == 3


@pytest.mark.torch
def test_devices_that_share_cores_say_so(run_cell: RunCell) -> None:
    result = run_cell("torch:ddp", "digits-mlp+width=32", devices=2, steps=3, parity=False)
    asked = dataclasses.replace(result.config, devices=8, mesh="data=8")
    shared = dataclasses.replace(result, config=asked, cores=2)
    on_gpus = [dataclasses.replace(row, device="cuda:0") for row in result.processes]
    assert [devices(dataclasses.replace(shared, cores=cores)) for cores in (1, 2, 8)] == [
        "8 on 1 core",
        "8 on 2 cores",
        "8",
    ]
    assert devices(dataclasses.replace(shared, processes=on_gpus)) == "8"
    threads = dataclasses.replace(shared, config=dataclasses.replace(asked, devices=2, threads=2))
    assert devices(threads) == "2 on 2 cores"
    assert "| 8 on 2 cores |" in comparison([shared])


def test_help_names_every_workload_and_what_stands_for_a_missing_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (run, compare):
        with pytest.raises(SystemExit):
            command.main(["--help"])
        told = " ".join(capsys.readouterr().out.split())
        drawn = [name.removeprefix("synthetic-") for name in WORKLOADS if name.startswith("synthetic-")]
        real = [name for name in WORKLOADS if not name.startswith("synthetic-")]
        assert f"{', '.join(real)} or synthetic-{', -'.join(drawn)}; sized" in told
        assert told.count("(default: ") >= 10
