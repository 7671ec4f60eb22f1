"""samestep predict --validate: the errors, good or bad, in every format, and one line for what it cannot do."""

import csv
import io
import json
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.seconds.measured_iterations import FOLDER
from samestep.experiments import predict
from samestep.experiments.advising.validate import VALIDATIONS, document, text


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert predict.main(["--validate", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", VALIDATIONS)
def test_json_has_the_errors_of_every_group(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, name, "--format", "json"))
    assert {"rows", "mape", "max_error", "regret", "groups"} <= found.keys()
    assert 0 < found["mape"] < found["max_error"] < 1
    for group in found["groups"].values():
        assert {"rows", "mape", "max_error", "far"} <= group.keys()
    assert len(found["far_rows"]) == found["far"]
    rows = list(csv.DictReader(io.StringIO(printed(capsys, name, "--format", "csv"))))
    assert len(rows) == found["rows"]


def test_the_split_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    told = " ".join(text(VALIDATIONS["vtrain"](None)).split())
    assert "no row is predicted with constants that were fitted to it" in told
    assert "hidden 2048, its hidden size left out" in told
    assert "suspected cause" in told
    assert "No constant was fitted to any of them" in " ".join(printed(capsys, "megatron-a100").split())
    assert "with a fit that left them out" in " ".join(printed(capsys, "llm-foundry").split())


def test_own_rows_are_predicted_with_the_fitted_constants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of another model, and one that is among the carried rows."""
    header, first, *_ = (FOLDER / "single_node.csv").read_text().splitlines()
    other = first.replace(",1024,16,24,", ",1024,16,18,")
    assert other != first
    path = tmp_path / "rows.csv"
    path.write_text("\n".join((header, first, other)) + "\n")
    found = json.loads(printed(capsys, "vtrain", "--rows", str(path), "--format", "json"))
    assert found["rows"] == 2
    assert "Of these 2 rows, 1 is among them" in found["split"]
    path.write_text("\n".join((header, other)) + "\n")
    alone = json.loads(printed(capsys, "vtrain", "--rows", str(path), "--format", "json"))
    assert alone["with_other_constants"] == {}
    assert "None of these rows is among them" in alone["split"]
    assert alone["regret"] is None


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", VALIDATIONS)
def test_it_fits(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, text(VALIDATIONS[name](None)).splitlines())) <= width


def test_a_row_that_is_far_off_is_a_failure_for_ci() -> None:
    cases = document(VALIDATIONS["megatron"](None)).cases
    assert {case.outcome for case in cases} == {"passed"}
    assert "failure" in {case.outcome for case in document(VALIDATIONS["torchtitan"](None)).cases}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--validate", "vtrian"], "vtrain"),
        (["--rows", "rows.csv"], "--rows rows.csv needs --validate vtrain"),
        (["--validate", "megatron", "--rows", "rows.csv"], "--rows rows.csv needs --validate vtrain"),
        (["--validate", "vtrain", "--rows", "nowhere.csv"], "nowhere.csv cannot be read"),
        (["--validate", "vtrain", "--devices", "8"], "leave out --devices"),
        (["torch:ddp", "--validate", "vtrain"], "leave out torch:ddp"),
    ],
)
def test_one_line_for_what_it_cannot_do(arguments: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        predict.main(arguments)
    assert "\n" not in str(caught.value)
