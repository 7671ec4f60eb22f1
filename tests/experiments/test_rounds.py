"""Rows are measured in rounds, each run at once a directory, so that nothing is lost and nothing measured twice."""

import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import samestep
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Refused, Unavailable, WorkerFailed
from samestep.common.files.writing import create, open_directory
from samestep.common.runtime.directory import open_run, write_json
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import load_result
from samestep.experiments import compare
from samestep.experiments.comparing import execution
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.comparison_request import describe
from samestep.experiments.comparing.stored import load, run_directory
from tests.experiments.comparisons import MISSED, PASSED, keep, make_up
from tests.lent import lend
from tests.results import leave, made

CELLS = ["torch:ddp", "torch:pp", "tf:mirrored"]
DIED = WorkerFailed("rank-1 died with exit code 9")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Comparisons leave their directories here."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(started: list) -> list[str]:
    return [run.name for run, _ in started]


def summary(comparison: Comparison) -> list[tuple[str, str, str, int]]:
    return [(row.cell, row.status, row.reason, len(row.results)) for row in comparison.rows]


def test_a_comparison_that_begins_in_the_same_second_as_another_has_its_own_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_up(monkeypatch, {})
    found = execution.new_directory("comparison-digits-mlp")
    names = iter([found, found, found.with_name("next")])
    monkeypatch.setattr(execution, "new_directory", lambda name: next(names))
    right = execution._check

    def check(*given: object) -> object:  # and meanwhile another command makes the directory
        open_directory(found)
        return right(*given)

    monkeypatch.setattr(execution, "_check", check)
    comparison = samestep.compare(CELLS, batch_size=48)
    assert comparison.directory == found.with_name("next")
    assert not (found / "compare.toml").exists()


# --- rounds -----------------------------------------------------------------------------------------------------------


def test_rows_are_interleaved_in_rounds_and_the_oracle_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started = make_up(monkeypatch, {})
    comparison = samestep.compare(CELLS, repeats=3, out="out", batch_size=48)
    assert names(started) == ["numpy:oracle", *CELLS * 3]
    assert [launch.out for _, launch in started[:3]] == ["out/numpy-oracle", "out/torch-ddp/1", "out/torch-pp/1"]
    assert len({launch.out for _, launch in started}) == 10
    assert [len(row.results) for row in comparison.rows] == [1, 3, 3, 3]
    assert [row.result for row in comparison.rows] == [row.results[0] for row in comparison.rows] == comparison.results
    assert [Path(result.config.out).name for result in comparison.rows[1].results] == ["1", "2", "3"]
    assert (comparison.repeats, comparison.reference, comparison.directory) == (3, "torch:ddp", Path("out"))
    assert comparison.exit_code == 0


def test_every_run_is_of_its_own_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    started = make_up(monkeypatch, {})
    vary = {"width": [8, 16], "devices": [2, 4]}
    comparison = samestep.compare(["ddp", "torch:single"], repeats=2, vary=vary, reference="ddp+width=8+devices=4")
    assert [row.cell for row in comparison.rows] == [
        "numpy:oracle+width=8",
        "numpy:oracle+width=16",
        *[f"torch:ddp+width={w}+devices={n}" for w in (8, 16) for n in (2, 4)],
        *[f"torch:single+width={w}" for w in (8, 16)],
    ]
    found = [(run.workload.model.width, run.num_devices) for run, _ in started]
    once = [(8, 2), (8, 4), (16, 2), (16, 4), (8, 1), (16, 1)]
    assert found == [(8, 1), (16, 1), *once * 2]
    assert comparison.reference == "torch:ddp+width=8+devices=4"
    assert comparison.directory is not None and comparison.directory.parent == Path("runs")


@pytest.mark.parametrize(
    ("outcomes", "status", "kept", "code"),
    [
        ([PASSED, DIED, PASSED], "failed", 0, 1),
        ([DIED, PASSED, PASSED], "failed", 0, 1),
        ([PASSED, MISSED, PASSED], "not the same step", 2, 4),
        ([PASSED, Unavailable("no port is free"), PASSED], "unavailable", 0, 3),
    ],
)
def test_a_row_that_went_wrong_runs_no_further_round(
    monkeypatch: pytest.MonkeyPatch, outcomes: list, status: str, kept: int, code: int
) -> None:
    started = make_up(monkeypatch, {"torch:pp": outcomes})
    comparison = samestep.compare(CELLS, repeats=3, out="out", batch_size=48)
    wrong = next(number for number, each in enumerate(outcomes, 1) if each is not PASSED)
    assert names(started).count("torch:pp") == wrong
    row = comparison.rows[2]
    assert (row.status, len(row.results), comparison.exit_code) == (status, kept, code)
    assert row.result is (row.results[-1] if kept else None)
    assert [len(row.results) for row in comparison.rows if row.cell != "torch:pp"] == [1, 3, 3]
    assert load(Path("out")).exit_code == code


def test_a_row_that_an_engine_refuses_later_is_not_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch, {"torch:pp": Refused("Slurm refuses the job: too many nodes")})
    comparison = samestep.compare(CELLS, out="out", batch_size=48)
    assert [row.status for row in comparison.rows[1:]] == ["same step", "not possible", "same step"]
    assert comparison.exit_code == load(Path("out")).exit_code == 3


@pytest.mark.parametrize(
    "outcomes",
    [
        {},
        {"torch:ddp": DIED, "tf:mirrored": [PASSED, MISSED]},
        {"torch:pp": [PASSED, KeyboardInterrupt()]},
        {"numpy:oracle": KeyboardInterrupt("SIGTERM")},
    ],
)
def test_a_comparison_is_loaded_as_it_ended(monkeypatch: pytest.MonkeyPatch, outcomes: dict) -> None:
    make_up(monkeypatch, outcomes)
    asked = describe({"repeats": 2, "require": "ddp", "framework": "torch", "batch_size": 50, "reference": "torch:pp"})
    ended = execution.compare(asked, "out", quiet=True)
    loaded = samestep.load("out")
    assert isinstance(loaded, Comparison)
    assert summary(loaded) == summary(ended)
    assert dataclasses.replace(loaded, rows=()) == dataclasses.replace(ended, rows=(), interrupt=None)
    assert [row.results for row in loaded.rows] == [row.results for row in ended.rows]
    assert {row.status for row in ended.rows} >= {"not possible"}, "torch:hybrid needs no such batch"


def test_it_says_what_is_missing_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch, {"torch:pp": [PASSED, KeyboardInterrupt()]})
    with pytest.raises(KeyboardInterrupt):
        samestep.compare(CELLS, repeats=3, out="Nightly", batch_size=48)
    loaded = load(Path("Nightly"))
    assert [len(row.results) for row in loaded.rows] == [1, 2, 1, 1]
    assert loaded.exit_code == 3
    assert loaded.exit_reason == "5 of 10 runs are missing; continue with: samestep compare --resume Nightly"
    assert "5 of 10 runs are missing; continue with: samestep compare --resume Nightly\n" in loaded.report("")


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", range(7))
def test_interrupted_at_any_run_it_goes_on_there(monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    order = ["numpy:oracle", *CELLS * 2]
    of_its_kind = order[:run].count(order[run])
    make_up(monkeypatch, {order[run]: [*[PASSED] * of_its_kind, KeyboardInterrupt()]})
    with pytest.raises(KeyboardInterrupt):
        samestep.compare(CELLS, repeats=2, out="out", batch_size=48)
    before = {path: path.read_bytes() for path in Path("out").rglob("result.json")}
    assert len(before) == run
    started = make_up(monkeypatch, {})
    comparison = samestep.compare(resume="out")
    assert names(started) == order[run:]
    assert [len(row.results) for row in comparison.rows] == [1, 2, 2, 2]
    assert {path: path.read_bytes() for path in before} == before
    make_up(monkeypatch, dict.fromkeys(order, DIED))
    assert summary(samestep.compare(resume="out")) == summary(comparison), "nothing is left to be run"


def test_a_row_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch, {"torch:pp": [PASSED, DIED], "tf:mirrored": [PASSED, MISSED]})
    samestep.compare(CELLS, repeats=3, out="out", batch_size=48)
    started = make_up(monkeypatch, {})
    comparison = samestep.compare(resume="out")
    assert names(started) == ["torch:pp", "torch:pp"]
    assert [(row.status, len(row.results)) for row in comparison.rows[2:]] == [
        ("same step", 3),
        ("not the same step", 2),
    ]


def test_a_run_that_was_cut_off_is_measured_anew_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch, {})
    samestep.compare(CELLS[:2], repeats=2, out="out", batch_size=48)
    half = run_directory(Path("out"), Cell.parse("torch:pp"), 1)
    result = load_result(half)
    (half / "result.json").unlink()
    open_run(half, result.config)
    for name in ("metrics.jsonl", "state.npz"):
        (half / name).unlink(missing_ok=True)
        os.close(create(half / name))
    (half / "mine.txt").write_text("not ours")
    started = make_up(monkeypatch, {})
    comparison = samestep.compare(resume="out")
    assert [launch.out for _, launch in started] == [str(half)]
    assert not (half / "state.npz").exists()
    assert (half / "mine.txt").exists()
    assert comparison.rows[2].results[0] == result


def test_what_is_unavailable_now_does_not_lose_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_up(monkeypatch, {})
    samestep.compare(CELLS, repeats=2, out="out", batch_size=48)
    run_directory(Path("out"), Cell.parse("tf:mirrored"), 2).joinpath("result.json").unlink()

    def lacking(run: object, launch: object, elsewhere: bool = False) -> str:
        if run.framework != "numpy":
            raise Unavailable("it is not installed")
        return ""

    monkeypatch.setattr(execution, "check_launch", lacking)
    comparison = samestep.compare(resume="out")
    assert [(row.status, len(row.results)) for row in comparison.rows[1:]] == [
        ("same step", 2),
        ("same step", 2),
        ("unavailable", 0),
    ]
    assert summary(load(Path("out"))) == summary(comparison)


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(*line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        compare.main(line)
    return str(caught.value)


@pytest.fixture
def kept(here: Path) -> Path:
    """The directory of a comparison."""
    rows = {"numpy:oracle": [made("numpy:oracle")], "torch:ddp": [made("torch:ddp")] * 2}
    return keep(here / "kept", rows, steps=30)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "--steps 20",
            "--steps is 30 there, and 20 here; leave out --steps to continue it, or start another one with",
        ),
        ("--strategies torch:pp", "--strategies is torch:ddp there, and torch:pp here"),
        ("--strategies pp", "--strategies is torch:ddp there, and torch:pp here"),
        ("--repeats 1", "--repeats is 2 there, and 1 here"),
        ("--repeats 3", "--repeats is 2 there, and 3 here"),
        ("--vary seed=1,2", "--vary is not given there, and seed=1,2 here"),
        ("--devices 2,4", "--vary is not given there, and devices=2,4 here"),
        ("--clip-norm 1", "--clip-norm is not given there, and 1.0 here"),
        ("--workload mnist-cnn", "--workload is digits-mlp+width=32 there, and mnist-cnn here"),
        ("--out other", "--resume kept continues what is there; leave out --out."),
        ("--file kept/compare.toml", "--resume kept continues what is there; leave out --file."),
        ("--steps many", "--steps is 'many'; give a whole number."),
    ],
)
def test_another_comparison_is_refused(kept: Path, line: str, told: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}
    assert told in refused("--resume", kept.name, *line.split())
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*")} == before


def test_a_directory_that_is_no_comparison_is_refused(here: Path) -> None:
    told = "is not a comparison: it has no compare.toml; name what `samestep compare` wrote."
    assert refused("--resume", "nowhere") == f"nowhere {told}"
    write_json(here / "result.json", made("torch:ddp"))
    assert refused("--resume", ".") == f". {told}"
    with pytest.raises(ConfigError, match="is not a comparison"):
        load(here)


def test_a_directory_that_holds_one_is_not_started_anew(kept: Path) -> None:
    told = refused("--out", "kept", "--strategies", "torch:ddp")
    assert told == "--out kept already holds a comparison; continue it with --resume kept, or name another directory."


def test_a_damaged_file_is_named(kept: Path) -> None:
    (kept / "compare.toml").write_text("strategies = [")
    assert "kept/compare.toml cannot be read: it is not TOML" in refused("--resume", "kept")
    with pytest.raises(ConfigError, match=r"kept/compare.toml cannot be read: it is not TOML"):
        samestep.load("kept")


def test_a_damaged_result_is_named(kept: Path) -> None:
    (kept / "torch-ddp" / "2" / "result.json").write_text("{")
    assert "torch-ddp/2 holds no readable result.json" in refused("--resume", "kept")


def test_results_of_another_request_are_refused(kept: Path) -> None:
    elsewhere = made("torch:ddp", workload="digits-mlp+width=64")
    elsewhere = dataclasses.replace(
        elsewhere, config=dataclasses.replace(elsewhere.config, workload=elsewhere.workload)
    )
    leave(kept / "torch-ddp" / "2", elsewhere)
    told = refused("--resume", "kept")
    assert told.startswith("kept/torch-ddp/2 holds another run than compare.toml asks for: --workload is digits-mlp+wi")
    assert told.endswith("; move it away, and --resume measures it again.")


def test_two_commands_do_not_measure_one_comparison(kept: Path) -> None:
    held = os.open(kept, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert refused("--resume", "kept") == "kept is being measured by another command; wait until that has ended."
    os.close(held)


# --- killed -----------------------------------------------------------------------------------------------------------

LINE = "--strategies torch:single,torch:ddp --repeats 2 --workload synthetic-mlp+width=8 --steps 3 --batch-size 8 --out out"
"""Five runs."""
MOMENTS = [{"compare.toml": 1}, {"result.json": 2, "config.json": 3}, {"result.json": 4}]
"""When to kill: there are so many files of these names. Before the first run, within the third, and after the fourth."""
DEADLINE_SECONDS = 120.0
"""Five times what it takes on a machine with nine times as much to do as it has cores."""


def count(name: str) -> int:
    return sum(1 for _ in Path("out").rglob(name))


def kill_at(line: str, moment: dict[str, int]) -> None:
    """Gives the command, and kills it as soon as there is so much in its directory."""
    command = [sys.executable, "-m", "samestep", "compare", *line.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with Path("stderr").open("w") as told:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=told)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while any(count(name) < least for name, least in moment.items()):
            assert process.poll() is None, Path("stderr").read_text()
            assert time.monotonic() < deadline, Path("stderr").read_text()
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.torch
@pytest.mark.timeout(4 * DEADLINE_SECONDS)
def test_killed_at_any_moment_it_measures_each_run_once(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: dict[Path, tuple[int, bytes]] = {}

    def look() -> None:
        """What was measured is as it was."""
        now = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path("out").rglob("result.json")}
        assert {path: now[path] for path in seen} == seen
        seen.update(now)

    for line, moment in zip([LINE, "--resume out", "--resume out"], MOMENTS, strict=True):
        kill_at(line, moment)
        look()
    lend(launcher, monkeypatch)
    assert compare.main(["--resume", "out"]) == 0
    look()
    wanted = {"numpy-oracle", *(f"torch-{name}/{number}" for name in ("single", "ddp") for number in (1, 2))}
    assert {str(path.parent.relative_to("out")) for path in seen} == wanted
    assert "| torch:ddp    | yes " in capsys.readouterr().out
    assert not list(Path("out").rglob("error.json"))


@pytest.mark.torch
def test_a_page_that_was_asked_for_is_written_after_a_kill_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill leaves what `begin_page` writes: nothing else says that a page was wanted."""
    make_up(monkeypatch, {"torch:pp": SystemExit()})
    with pytest.raises(SystemExit):
        compare.main(["--strategies", ",".join(CELLS), "--out", "out", "--batch-size", "48", "--report"])
    assert "has not ended. If it was killed: samestep compare --resume out" in Path("out/report.html").read_text()
    make_up(monkeypatch, {})
    assert compare.main(["--resume", "out"]) == 0
    assert "torch:pp" in Path("out/report.html").read_text()


@pytest.mark.torch
def test_rows_may_differ_in_their_links_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = make_up(monkeypatch, {})
    asked = {"strategies": "torch:ddp", "devices": "2", "vary": {"bandwidth": ["200mbit", "1gbit"]}}
    execution.compare(describe(asked), str(tmp_path / "comparison"), quiet=True)
    assert [launch.bandwidth for run, launch in started if run.framework == "torch"] == ["200mbit", "1gbit"]


@pytest.mark.torch
def test_the_oracle_of_compressed_rows_is_compressed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = make_up(monkeypatch, {})
    asked = {"strategies": "torch:ddp", "devices": "2", "compress": "int8"}
    execution.compare(describe(asked), str(tmp_path / "comparison"), quiet=True)
    assert [(run.name, run.num_devices) for run, _ in started] == [("numpy:oracle", 2), ("torch:ddp", 2)]
