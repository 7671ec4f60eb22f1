"""`samestep clean`: what it shows, what it frees, and what it leaves alone."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.files.writing import create, make_folder, open_directory, replacing
from samestep.common.files.written import LIST, seal
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import open_run, write_error, write_json
from samestep.common.runtime.parent.judging.cache import hold
from samestep.common.runtime.parent.judging.reference_curves import Curve, curve_folder, keep_curve
from samestep.common.runtime.start import initial_state
from samestep.common.runtime.worker.worker import claim_role
from samestep.common.steps.log import Log, Window
from samestep.experiments import clean
from samestep.experiments.cleaning import disk_usage
from samestep.experiments.comparing.comparison_file import NAME
from tests.experiments.comparisons import placed

LONG_AGO = time.time() - 2 * disk_usage.QUIET_SECONDS


KEY = "0123456789abcdef01234567"
"""As the cache names its entries."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with an empty cache."""
    monkeypatch.setenv("COLUMNS", "1000")  # no line depends on how long the path of this folder is
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def put(path: Path, count: int) -> None:
    """A file as samestep writes it."""
    with replacing(path) as file:
        file.write(b"x" * count)


def a_run(path: Path, result: bool = True, state: bool = False, used: float | None = None, **fields: object) -> Path:
    """A directory as a run leaves it."""
    open_run(path, RunConfig(**fields))
    for name in () if fields.get("prepare") else ("metrics.jsonl", "process-rank-0.json", "rank-0.log"):
        put(path / name, 100)
    if state:
        put(path / "state.npz", 100)
    if result:
        (path / "error.json").unlink()
        write_json(path / "result.json", {})
    seal(path)
    for file in path.iterdir():
        os.utime(file, None if used is None else (used, used))
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert clean.main(arguments) == 0
    return capsys.readouterr().out


def row(printed: str, kind: str) -> list[str]:
    (line,) = [line for line in printed.splitlines() if line.startswith(f"| {kind}")]
    return [part.strip() for part in line.split("|")[1:-1]]


def caches(here: Path) -> tuple[Path, Path, Path]:
    """A curve of 300 bytes, a data set of 50, and a calibration of 20."""
    cache = here.parent / "cache/samestep"
    curve, data, machine = cache / "oracle" / KEY, cache / "data" / f"{KEY}.npz", cache / "machines/here.toml"
    for folder in (curve, curve / "20.cut", data.parent, machine.parent):
        open_directory(folder)
    for name in ("config.json", "metrics.jsonl", "state.npz"):
        put(curve / "20.cut" / name, 100)
    put(data, 50)
    put(machine, 20)
    return curve, data, machine


def test_it_shows_what_there_is_and_frees_nothing_unasked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curve, data, machine = caches(here)
    run = a_run(here / "runs" / "one")
    os.utime(curve, (1e9, 1e9))
    printed = told(capsys)
    assert row(printed, "curves of the oracle") == ["curves of the oracle", "1", "300 B", "2001-09-09", "--oracle"]
    assert row(printed, "decoded data sets")[1:3] == ["1", "50 B"]
    assert row(printed, "calibrations of this machine")[1:3] == ["1", "20 B"]
    assert row(printed, "run directories")[1] == "1"
    assert str(curve.parent) in printed
    assert "at most 1.0 GiB" in " ".join(printed.split())
    assert all(path.exists() for path in (curve / "20.cut" / "state.npz", data, machine, run / "result.json"))


def test_it_finds_the_curves_that_judgements_keep(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = RunConfig("numpy", "oracle", "synthetic-mlp+width=8", steps=3, dtype="float64")
    run, launch = parse(asked), launch_of(asked)
    for seed in ("0", "1"):
        folder = curve_folder(run, launch, seed)
        keep_curve(
            Curve(Log(None, (Window(3, 0.1, (1.0, 0.5, 0.25)),)), initial_state(run, launch)), run, launch, folder
        )
    assert row(told(capsys), "curves of the oracle")[1] == "2"
    hold(Path("nowhere"))  # the last one was in use
    assert "(curves of the oracle: 2)." in told(capsys, "--oracle")
    assert not folder.exists()


@pytest.mark.parametrize("name", ["oracle", "data", "machines", "runs"])
def test_it_frees_what_is_named_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    curve, data, machine = caches(here)
    held = {"oracle": curve, "data": data, "machines": machine, "runs": a_run(here / "runs" / "one")}
    printed = told(capsys, f"--{name}")
    assert printed.startswith("Freed ")
    assert f"({disk_usage.KINDS[name]}: 1)." in printed
    assert row(printed, disk_usage.KINDS[name])[1] == "0"
    assert [kind for kind, path in held.items() if path.exists()] == [kind for kind in held if kind != name]


def test_all_is_all_of_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = [*caches(here), a_run(here / "runs" / "one"), a_run(here / "runs" / "night" / "torch-ddp")]
    told(capsys, "--all")
    assert [path for path in held if path.exists()] == []


def test_nothing_is_left_of_a_comparison_without_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, partly = here / "runs" / "whole", here / "runs" / "partly"
    for directory in (whole, partly):
        open_directory(directory)
        put(directory / NAME, 10)
        for cell, number in (("numpy:oracle", 1), ("torch:ddp", 1), ("torch:ddp", 2)):
            a_run(placed(directory, cell, number))
        open_directory(missing := placed(directory, "tf:tpu", 1))
        write_error(missing, "parent", Unavailable("there is none"))
    a_run(placed(partly, "torch:pp", 1), state=True, keep_state=True)
    told(capsys, "--runs")
    assert not whole.exists()
    assert [path.name for path in sorted(partly.iterdir())] == [NAME, "tf-tpu", "torch-pp", LIST]


def test_a_state_that_was_kept_on_purpose_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_purpose = a_run(here / "runs" / "kept", state=True, keep_state=True)
    wrong_step = a_run(here / "runs" / "wrong", state=True)
    printed = told(capsys, "--runs")
    assert (on_purpose / "state.npz").exists()
    assert not wrong_step.exists()
    assert "--runs leaves alone: 1 whose state was kept by --keep-state;" in printed


def test_a_run_without_a_result_stays_until_nothing_in_it_changes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running, died = a_run(here / "runs" / "a", result=False), a_run(here / "runs" / "b", result=False, used=LONG_AGO)
    failed = a_run(here / "runs" / "c", result=False)
    write_error(failed, "rank-0", ValueError("no"))
    for file in failed.iterdir():
        os.utime(file, (LONG_AGO, LONG_AGO))
    printed = told(capsys, "--runs")
    assert (running.exists(), died.exists(), failed.exists()) == (True, False, False)
    assert "1 without a result" in printed


def test_a_prepared_run_waits_until_it_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queued = a_run(here / "runs" / "queued", result=False, used=LONG_AGO, prepare=True)
    printed = told(capsys, "--runs")
    assert (
        "--runs leaves alone: 1 that was prepared and waits to be started; `samestep clean DIR` removes one." in printed
    )
    assert queued.exists()
    assert "(runs/queued)." in told(capsys, "runs/queued")
    assert not queued.exists()


def test_a_prepared_run_that_was_started_and_died_is_a_failed_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    died = a_run(here / "runs" / "died", result=False, prepare=True)
    os.close(create(died / "process-rank-0.json"))
    for file in died.iterdir():
        os.utime(file, (LONG_AGO, LONG_AGO))
    told(capsys, "--runs")
    assert not died.exists()


def test_a_run_whose_process_is_there_stays_however_quiet_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = a_run(here / "runs" / "running", result=False, used=LONG_AGO)
    claim_role(running, "rank-1", 1)  # as this process would be a worker of it
    assert "1 that is running" in told(capsys, "--runs")
    with pytest.raises(ConfigError, match="runs/running is running; nothing was removed"):
        clean.main(["runs/running"])
    assert (running / "config.json").exists()


def test_a_comparison_that_is_named_goes_with_all_its_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_directory(here / "night")
    put(here / "night" / NAME, 10)
    a_run(placed(here / "night", "torch:pp", 1), state=True, keep_state=True)
    a_run(placed(here / "night", "torch:ddp", 1), result=False)
    (here / "night" / "report.html").write_text("read me")
    told(capsys, "night")
    assert [path.name for path in (here / "night").rglob("*")] == ["report.html"]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda path: path.mkdir(), "is no run, comparison or record"),
        (lambda path: path.write_text("mine"), "is no run, comparison or record"),
        (os.mkfifo, "is no run, comparison or record"),
        (lambda path: None, "is not there"),
        (lambda path: path.symlink_to("one"), "is a link"),
        (lambda path: shutil.copytree("one", path), "has no list of what samestep wrote there"),
        (lambda path: (a_run(path) / LIST).unlink(), "has no list of what samestep wrote there"),
    ],
)
def test_what_is_named_and_not_ours_is_refused(here: Path, made: Callable[[Path], object], why: str) -> None:
    one = a_run(here / "one")
    made(here / "named")
    with pytest.raises(ConfigError, match=f"^named {why}.*; nothing was removed.$"):
        clean.main(["one", "named"])
    assert (one / "config.json").exists()


def test_runs_of_earlier_versions_are_told_and_left_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = a_run(here / "runs" / "old")
    (old / LIST).unlink()
    printed = told(capsys, "--runs")
    assert "--runs leaves alone: 1 without a list of what samestep wrote" in printed
    assert "(runs/old); remove such a directory yourself." in printed
    assert (old / "result.json").exists()


def test_a_link_in_place_of_the_runs_is_told_and_not_followed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = a_run(here / "elsewhere" / "one")
    (here / "runs").symlink_to("elsewhere")
    assert "it is a link, and nothing in it is touched" in " ".join(told(capsys, "--runs").split())
    assert (elsewhere / "result.json").exists()


@pytest.mark.parametrize("change", ["replaced", "written over", "a link now"])
def test_what_somebody_made_of_our_file_is_theirs(here: Path, capsys: pytest.CaptureFixture[str], change: str) -> None:
    log = a_run(here / "runs" / "one") / "rank-0.log"
    (here / "notes").write_text("mine")
    if change != "written over":
        log.unlink()
    log.symlink_to(here / "notes") if change == "a link now" else log.write_text("mine")
    told(capsys, "--all")
    assert [path.name for path in (here / "runs" / "one").iterdir()] == ["rank-0.log"]
    assert (log.read_text(), (here / "notes").read_text()) == ("mine", "mine")


def test_what_is_not_ours_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(here / "runs" / "one")
    (run / "notes.md").write_text("mine")
    elsewhere = a_run(here / "elsewhere")
    foreign = here / "runs" / "another-tool"
    foreign.mkdir()
    for name, content in (("config.json", {"strategy": "mine"}), ("result.json", {})):
        (foreign / name).write_text(json.dumps(content))
    told(capsys, "--all")
    assert [path.name for path in run.iterdir()] == ["notes.md"]
    assert (elsewhere / "result.json").exists()
    assert (foreign / "config.json").exists()


# --- records ----------------------------------------------------------------------------------------------------------


def a_record(path: Path, used: float) -> Path:
    """A directory as `samestep record` leaves it, with a rerun of `samestep diff` in it."""
    open_directory(path)
    make_folder(path / "reruns", path)
    for directory in (path / "reruns" / "perturbed-0", path):
        open_directory(directory)
        put(directory / "rank-0.steps", 100)
        os.utime(directory / "rank-0.steps", (used, used))
    for file in path.iterdir():
        os.utime(file, (used, used))
    return path


def test_records_go_with_their_reruns_unless_they_may_still_be_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = a_record(here / "runs" / "old", LONG_AGO), a_record(here / "runs" / "new", time.time())
    (old / "mine.txt").write_text("mine")
    os.utime(old / "mine.txt", (LONG_AGO, LONG_AGO))
    assert clean.main(["--runs"]) == 0
    assert (old / "rank-0.steps").exists()
    assert clean.main(["--records"]) == 0
    told = capsys.readouterr().out
    assert "Freed 200 B (records of scripts: 1)." in told
    assert "--records leaves alone: 1 that changed within the last day" in told
    assert [each.name for each in old.iterdir()] == ["mine.txt"]
    assert (new / "rank-0.steps").exists()
    assert clean.main([str(new)]) == 0
    assert not new.exists()
