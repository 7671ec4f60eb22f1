"""Requests that are odd in a way of their own, each with its one line."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.files.output_file import check_output, save
from samestep.common.flags import LEAST_FLOAT
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.records import load_result
from samestep.experiments import advise, calibrate, compare, doctor, explore, predict, report, run, strategies
from samestep.experiments.cli.ending import run_command
from samestep.experiments.comparing import execution
from samestep.experiments.comparing.comparison_request import MAX_ROWS
from tests.results import made


@pytest.mark.parametrize("command", [run.main, compare.main])
@pytest.mark.parametrize(
    "given", [("--parity", "--no-parity"), ("--no-parity", "--parity"), ("--dropout", "--no-dropout")]
)
def test_two_flags_that_contradict_each_other(command: Callable[[list[str]], int], given: tuple[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=rf"--{given[0].removeprefix('--').removeprefix('no-')} and --no-.* both given"
    ):
        command([*given])


@pytest.mark.parametrize("flag", ["--learning-rate", "--clip-norm"])
def test_a_number_that_float32_does_not_hold(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag} is 1e-320, which is 0 in float32; give at least 1.18e-38"):
        run.main([flag, "1e-320"])
    assert predict.main(["torch:ddp", "--clip-norm", str(LEAST_FLOAT)]) == 0


def test_more_rows_than_anybody_reads() -> None:
    """They are counted before each is made."""
    seeds = ",".join(map(str, range(100_000)))
    with pytest.raises(ConfigError, match=f"--vary seed lists 100000 values; list at most {MAX_ROWS}"):
        compare.main(["--vary", f"seed={seeds}"])
    some = ",".join(map(str, range(1, 300)))
    with pytest.raises(ConfigError, match=r"has 89401 rows; name fewer cells or vary less, up to 1000 rows"):
        compare.main(["--strategies", "torch:single", "--vary", f"seed={some}", "--vary", f"batch_size={some}"])
    with pytest.raises(ConfigError, match="has 50000 rows"):
        compare.main(["--strategies", ",".join(["torch:single"] * 50_000)])


@pytest.mark.parametrize("name", ["", "x" * 300, "nothing/there", "/dev/null/x"])
@pytest.mark.parametrize("flag", ["--file", "--resume", "--against"])
def test_a_name_that_leads_to_nothing(flag: str, name: str) -> None:
    """An empty one is a name as well, and not as if the flag were left out."""
    with pytest.raises(ConfigError):
        compare.main([flag, name, "--strategies", "torch:nope"])


@pytest.mark.parametrize("name", ["x" * 300, "nothing/there", "/dev/null/x"])
def test_runs_to_calibrate_with_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="--calibrate"):
        advise.main(["--calibrate", name])


def test_a_directory_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a file system has no inode left: that shows only when it is made."""

    def full(path: Path, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(execution.Path, "mkdir", full)
    with pytest.raises(
        ConfigError, match="--out out cannot be made \\(No space left on device\\); name another directory"
    ):
        compare.main(["--strategies", "torch:single", "--steps", "1", "--out", "out"])


@pytest.mark.parametrize("text", ["x", "", "-1", "1e3", "9" * 40])
def test_an_environment_that_a_package_cannot_read(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(SystemExit) as ended:
        run_command(predict.main, ["torch:ddp"])
    told = capsys.readouterr().err
    assert (ended.value.code, told.count("\n")) == (2, 1)
    assert told.startswith(f"samestep: SOURCE_DATE_EPOCH is '{text}' in the environment; set it to a whole number")


@pytest.mark.parametrize("place", [".", "/dev/full", "missing/x", "/proc/x", "x" * 300])
@pytest.mark.parametrize(
    "command",
    [
        lambda out: explore.main(["torch:ddp", "-o", out]),
        lambda out: strategies.main(["torch:ddp", "--picture", "-o", out]),
        lambda out: report.main(["runs", "-o", out]),
        lambda out: doctor.prove({"torch": [object()]}, Path(out), "github"),
    ],
    ids=["explore", "strategies", "report", "doctor"],
)
def test_a_bad_place_for_a_file_is_refused_before_anything_is_run(
    command: Callable[[str], int], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("samestep.common.runtime.parent.launcher.Launcher", None)
    monkeypatch.setattr("samestep.experiments.page.loading.load", None)
    with pytest.raises(ConfigError, match=r"^-o .* cannot be written \(.*\); name a file"):
        command(place)
    assert not list(tmp_path.iterdir())


def test_a_calibration_that_cannot_be_stored_is_refused_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(calibrate, "calibrate", None)
    with pytest.raises(ConfigError, match=r"cannot be made .*; set XDG_CACHE_HOME"):
        calibrate.main([])


def test_figures_of_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samestep.experiments.page.records.record_page.are_records", lambda paths: True)
    with pytest.raises(ConfigError, match="--figures draws runs and comparisons, and records are named; leave it out"):
        report.main([str(tmp_path), "--figures", str(tmp_path / "figures")])


def test_a_report_into_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="cannot be written \\(it is a pipe, and nobody reads it\\)"):
        save("text", tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    check_output(tmp_path / "pipe")  # and its reader does not see an end
    save("text", tmp_path / "pipe")
    assert os.read(reading, 100) == b"text"
    os.close(reading)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"processes": []}, "it has no devices"),
        ({"losses": []}, "it has 0 losses of steps 0 to 30"),
        ({"dtype": "float8"}, "its dtype is 'float8'"),
        ({"machine": {}}, "machine has no processor"),
        ({"config": {}}, "its strategy is 'ddp', and that of its request 'single'"),
        ({"predicted": {}}, "it predicts no device"),
        ({"first_step": 2**62}, "it has 30 losses of steps 4611686018427387904 to 30"),
        ({"seed": 10**400}, r"its seed is larger than 2\^63"),
        ({"losses": [1.0, float("nan")]}, "its losses.1 is nan"),
        ({"startup_seconds": float("inf")}, "its startup_seconds is inf"),
    ],
)
def test_a_result_that_no_run_has(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    write_json(tmp_path / "result.json", made("torch:ddp"))
    load_result(tmp_path)
    values = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**values, **fields}))
    with pytest.raises(ConfigError, match=f"result.json is not a result: {said}"):
        load_result(tmp_path)
