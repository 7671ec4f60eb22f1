"""`samestep report`: from any run directories, in any format; what cannot be read gets a line, and the rest is reported."""

import csv
import dataclasses
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.runtime.directory import open_run, write_error
from samestep.experiments import compare, report
from samestep.experiments.page.loading import load
from samestep.experiments.page.page import page
from tests.experiments.comparisons import make_up
from tests.page import runs
from tests.results import made

DATA = Path(__file__).parents[1] / "data"
Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """The exit code of a report that is written in a folder of its own, and what it printed on stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def told(*arguments: object) -> tuple[int, str, str]:
        code = report.main([str(each) for each in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return told


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison and a single run, in one folder."""
    home = tmp_path_factory.mktemp("good")
    runs.comparison(home / "main")
    runs.single(home / "deep" / "er" / "one", runs.trained("torch:zero1", 500.0))
    return home


# --- formats ----------------------------------------------------------------------------------------------------------


def test_the_page_is_written_where_it_is_asked_for(told: Told, good: Path, tmp_path: Path) -> None:
    assert told(good) == (0, "Report: report.html\n", "")
    assert told(good, "-o", tmp_path / "page.html")[0] == 0
    first, second = (Path(name).read_text() for name in ("report.html", "page.html"))
    assert first == second
    assert first.startswith("<!doctype html>\n<html")
    assert "http" not in first.replace("https://", "http://").replace("http-equiv", "")


def test_csv_has_a_line_a_row_with_the_figures_of_result_json(told: Told, good: Path) -> None:
    code, printed, _ = told(good, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(printed), strict=True))
    assert code == 0
    assert [(row["comparison"], row["cell"]) for row in rows][:2] == [("main", "numpy:oracle"), ("main", "torch:ddp")]
    by_cell = {row["cell"]: row for row in rows}
    assert float(by_cell["torch:zero1"]["examples_per_second_median"]) == 500.0
    assert by_cell["torch:fsdp"]["against_reference_verdict"] == "faster"
    assert by_cell["tf:mirrored"]["against_reference_verdict"] == "not separated"


def test_json_has_every_row_whole(told: Told, good: Path) -> None:
    record = json.loads(told(good, "--format", "json")[1])
    main, single = record["comparisons"]
    assert (main["title"], main["exit_code"]) == ("main", 4)
    assert single["rows"][0]["result"] == json.loads((good / "deep/er/one/result.json").read_text())
    assert record["problems"] == []


def test_github_has_the_tables_that_the_comparisons_print(told: Told, good: Path, tmp_path: Path) -> None:
    code, printed, _ = told(good, "--format", "github", "-o", tmp_path / "tables.md")
    assert (code, printed) == (0, f"Report: {tmp_path / 'tables.md'}\n")
    text = (tmp_path / "tables.md").read_text()
    assert "## main" in text
    assert "| torch:fsdp" in text
    assert "1.40x faster" in text
    assert "Again:" not in text


def test_an_unknown_format_is_refused(told: Told, good: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown format 'htm'\. Did you mean 'html'"):
        told(good, "--format", "htm")


def test_a_comparison_writes_its_page_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_up(monkeypatch, {})
    for form in ("github", "csv"):
        compare.main(["--strategies", "torch:ddp", "--out", form, "--format", form, "--report"])
        printed = capsys.readouterr()
        line = f"Report: {form}/report.html"
        assert (line in printed.out, line in printed.err) == (form == "github", form == "csv")
        written = Path(form, "report.html").read_text()
        assert written == page(load([Path(form)]))
        assert "torch:ddp" in written


# --- what is wrong ----------------------------------------------------------------------------------------------------


def broken(home: Path) -> dict[Path, str]:
    """Directories that cannot be reported, with what is said of each."""
    corrupt, newer, lacking = home / "corrupt", home / "newer", home / "lacking"
    for path in (corrupt, newer, lacking):
        shutil.copytree(DATA / "ddp", path)
    (corrupt / "result.json").write_bytes(b'{"schema_version": 4, "losses": [1.0, \xff')
    (newer / "result.json").write_text('{"schema_version": 99}')
    (lacking / "result.json").write_text('{"schema_version": 4, "framework": "torch"}')
    (empty := home / "empty").mkdir()
    (asked := home / "asked").mkdir()
    (asked / "config.json").write_text('{"framework": "torch", "colour": "red"}')
    (file := home / "file").write_text("no directory")
    return {
        corrupt: "no readable result.json",
        newer: "its schema_version is 99",
        lacking: "is not a result",
        empty: "holds no run",
        asked: "no readable config.json",
        file: "is not a directory",
        home / "missing": "does not exist",
        home / ("long" * 1000): "cannot be read (File name too long)",
    }


def test_what_cannot_be_read_gets_a_line_each_and_the_rest_is_reported(told: Told, good: Path, tmp_path: Path) -> None:
    wrong = broken(tmp_path)
    code, _, errors = told(*wrong, good)
    lines = errors.splitlines()
    assert code == 1
    assert len(lines) == len(wrong)
    for line, (path, message) in zip(lines, wrong.items(), strict=True):
        assert line.startswith(f"not reported: {path}: ")
        assert message in line
    written = Path("report.html").read_text()
    assert "8 directories could not be read:" in written
    assert all(str(path) in written for path in wrong)
    assert "torch:fsdp" in written


def test_a_damaged_run_of_a_comparison_is_a_failed_row(told: Told, tmp_path: Path) -> None:
    main = runs.comparison(tmp_path / "main")
    damaged = main / "torch-fsdp" / "2" / "result.json"
    damaged.write_text(damaged.read_text()[:500])
    code, printed, errors = told(main, "--format", "csv")
    status = {row["cell"]: row["status"] for row in csv.DictReader(io.StringIO(printed))}
    assert (code, status["torch:fsdp"], status["torch:ddp"]) == (1, "failed", "same step")
    assert errors.startswith(f"not reported: {damaged.parent}: ")


def test_a_damaged_compare_toml_is_named(told: Told, good: Path, tmp_path: Path) -> None:
    (main := tmp_path / "main").mkdir()
    (main / "compare.toml").write_text("strategies = [")
    code, _, errors = told(main, good)
    assert code == 1
    assert "is not TOML" in errors


def test_runs_that_did_not_end_say_why(told: Told, tmp_path: Path) -> None:
    open_run(tmp_path / "cut-off", made("torch:ddp").config)
    write_error(open_run(tmp_path / "died", made("torch:fsdp").config), "rank-1", WorkerFailed(runs.MARKUP))
    waiting = dataclasses.replace(made("torch:zero1").config, prepare=True)
    open_run(tmp_path / "waiting", waiting)
    code, printed, errors = told(tmp_path / "cut-off", tmp_path / "died", tmp_path / "waiting", "--format", "csv")
    rows = {row["cell"]: (row["status"], row["reason"]) for row in csv.DictReader(io.StringIO(printed))}
    assert (code, errors) == (0, "")
    assert rows["torch:ddp"] == ("failed", "it was cut off before it ended, or has not ended yet")
    assert rows["torch:fsdp"] == ("failed", runs.MARKUP)
    assert rows["torch:zero1"] == ("not run", "it was prepared and waits to be started")
    assert told(tmp_path / "died")[0] == 0
    written = Path("report.html").read_text()
    assert "<b>bold" not in written
    assert "&lt;script&gt;alert(&#39;log&#39;)&lt;/script&gt;" in written
    assert "\x1b" not in written


def test_results_without_deviations_are_reported(told: Told) -> None:
    assert told(DATA)[0] == 0
    written = Path("report.html").read_text()
    assert "5e-07" in written or "1e-07" in written
    assert "These results have no deviations of single steps" in written


def test_runs_of_different_workloads_are_kept_apart(told: Told, tmp_path: Path) -> None:
    for width in (32, 64):
        result = runs.trained("torch:ddp", 100.0)
        config = dataclasses.replace(result.config, workload=f"digits-mlp+width={width}")
        result = dataclasses.replace(result, workload=config.workload, config=config)
        runs.single(tmp_path / str(width), result)
    code, _, errors = told(tmp_path)
    assert (code, errors.count("runs of digits-mlp+width="), errors.count("\n")) == (0, 2, 1)
    assert errors.startswith("Single runs of different settings are not compared: ")
    assert errors.strip() in Path("report.html").read_text()
    loaded = load([tmp_path])
    assert [(facet.workload, len(facet.rows)) for facet in loaded.facets()] == [
        ("digits-mlp+width=32", 1),
        ("digits-mlp+width=64", 1),
    ]


def test_runs_of_one_request_are_rounds_of_one_row(tmp_path: Path) -> None:
    for number, rate in enumerate((100.0, 110.0, 90.0)):
        runs.single(tmp_path / f"run-{number}", runs.trained("torch:ddp", rate))
    (entry,) = load([tmp_path]).entries
    assert entry.measured and entry.measured.speed.prediction and entry.measured.speed.prediction.rounds == 3
    assert [path.name for path in entry.directories] == ["run-0", "run-1", "run-2"]


def test_nothing_to_report_is_refused(told: Told, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"there is nothing to report: .*empty: holds no run"):
        told(tmp_path / "empty")
    with pytest.raises(ConfigError, match="samestep report needs RUNS, as in: samestep report"):
        told()


@pytest.mark.parametrize("place", ["missing/report.html", "a-folder", "/dev/full"])
def test_a_file_that_cannot_be_written_is_refused(told: Told, good: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "a-folder").mkdir()
    with pytest.raises(ConfigError, match=rf"-o {place} cannot be written \(.*\); name a file"):
        told(good, "-o", place)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_link_is_written_through(told: Told, good: Path, tmp_path: Path) -> None:
    (tmp_path / "latest.html").symlink_to(tmp_path / "real.html")
    assert told(good, "-o", "latest.html")[0] == 0
    assert (tmp_path / "latest.html").is_symlink()
    assert (tmp_path / "real.html").read_text().startswith("<!doctype html>")


def test_an_earlier_comparison_stands_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_up(monkeypatch, {})
    compare.main(["--strategies", "torch:ddp", "--out", "before"])
    compare.main(["--strategies", "torch:ddp", "--out", "after", "--against", "before", "--report"])
    assert "Against before</summary><pre>" in Path("after", "report.html").read_text()


def test_a_page_is_opened_where_that_is_asked_for(told: Told, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or len(opened) < 3)
    assert told(good, "-o", "one.html", "--open")[0] == 0
    make_up(monkeypatch, {})
    compare.main(["--strategies", "torch:ddp", "--out", "two", "--open"])
    assert opened == [Path(name).resolve().as_uri() for name in ("one.html", "two/report.html")]
    assert f"no browser was found; open {Path('report.html').resolve().as_uri()}" in told(good, "--open")[2]
    with pytest.raises(ConfigError, match="--open shows a page, and none is written"):
        told(good, "--open", "--format", "csv")
