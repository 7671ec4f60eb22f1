"""What the catalogue's command prints, and what `--help` promises."""

import sys

import pytest

from common.config import FRAMEWORKS
from common.strategy import framework_info
from common.workload.table import WORKLOADS
from experiments import compare, run, strategies
from experiments.tables import github

NAMES = [f"{framework}:{row.name}" for framework in FRAMEWORKS for row in framework_info(framework).rows]


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


def test_help_names_every_workload_and_what_stands_for_a_missing_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (run, compare):
        with pytest.raises(SystemExit):
            command.main(["--help"])
        told = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
        for name in WORKLOADS:
            assert name in told or f"-{name.removeprefix('synthetic-')}" in told
        assert told.count("(default: ") >= 10
