"""A run that dies goes on from its newest checkpoint, and ends in the very bits of one that never died."""

import contextlib
import dataclasses
import errno
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.resuming.struck_worker import STRUCK
from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.files.removing import discard
from samestep.common.files.writing import open_directory
from samestep.common.files.written import opened, present
from samestep.common.flag_words import Interval, read_interval
from samestep.common.program import TrainState
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints import writing
from samestep.common.runtime.checkpoints.committed import (
    COMMIT,
    FOLDER,
    Checkpoint,
    Commit,
    Damaged,
    find_checkpoints,
    find_folders,
)
from samestep.common.runtime.checkpoints.committed import newest as newest_of
from samestep.common.runtime.checkpoints.resuming import digest_program
from samestep.common.runtime.checkpoints.writing import write_checkpoint
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import STATE
from samestep.common.steps.log import METRICS
from samestep.common.strategy import Run
from samestep.experiments import checkpoints, ledger
from samestep.experiments import run as run_command
from samestep.experiments.run import saved
from tests.cells import every_row, usual
from tests.lent import LentLauncher

OWN = Path(__file__).parents[2] / "own" / "both_zoo.py"
Kill = Callable[[int, list[float], float], None]


def rows(*fast: str) -> list:
    """Every synchronous row; `make test` takes only those that are named."""
    cells = [f"{framework}:{row.name}" for framework, row in every_row() if row.axes and row.synchronous(row.options())]
    return [
        pytest.param(
            cell, marks=[getattr(pytest.mark, cell[: cell.index(":")]), *[pytest.mark.slow] * (cell not in fast)]
        )
        for cell in [*cells, "tf:dtensor+clients=2"]
    ]


def usual_of(cell: str) -> str:
    return usual(strategy_info(*cell.partition("+")[0].split(":")))


def ask(cell: str, out: Path, **fields: object) -> tuple:
    defaults = {
        "workload": usual_of(cell),
        "batch_size": 48,
        "steps": 24,
        "devices": 4,
        "save_every": "5",
        "parity": True,
    }
    config = Cell.parse(cell).apply_to(RunConfig(out=str(out), keep_state=True, **{**defaults, **fields}))
    return parse(config), launch_of(config)


def take(launcher: Launcher, cell: str, out: Path, kill: Kill | None = None, **fields: object) -> RunResult:
    run, launch = ask(cell, out, **fields)
    return launcher.run(run, launch, kill)


def killer(directory: Path, step: int) -> Kill:
    """Kills the last process of a run once, as soon as the run has taken some steps and has a checkpoint."""
    killed: list[int] = []

    def kill(reached: int, losses: list[float], seconds: float) -> None:
        if reached >= step and not killed and find_folders(directory):
            killed.append(pid_of(sorted(directory.glob("process-*.json"))[-1]))
            os.kill(killed[0], signal.SIGKILL)

    return kill


def pid_of(file: Path) -> int:
    """The number of a process, from a file that it may be writing at the moment."""
    while True:
        with contextlib.suppress(ValueError):
            return json.loads(file.read_text())["pid"]


def take_struck(launcher: Launcher, run: Run, launch: Launch, step: int) -> RunResult:
    """Takes a run whose last process dies after a step of its first attempt."""
    last = [each.role for each in run.strategy.topology(run) if not each.serves][-1]
    fragile = LentLauncher(launcher, "benchmarks.resuming.struck_worker")
    return fragile.run(run, launch, environment={STRUCK: f"{last} {step}"})


@pytest.mark.parametrize("cell", rows("torch:ddp"))
def test_a_run_that_was_killed_ends_in_the_same_bits(launcher: Launcher, tmp_path: Path, cell: str) -> None:
    """Its last process dies between two checkpoints."""
    fields = {"steps": 24, "optimizer": "adamw"}
    whole = take(launcher, cell, tmp_path / "whole", save_every=None, **fields)
    run, launch = ask(cell, tmp_path / "died", save_every="5", restarts=1, **fields)
    died = take_struck(launcher, run, launch, 13)
    assert died.attempt == 2 and died.resumed_at == 10
    assert died.losses == whole.losses and len(died.losses) == 24
    assert died.state_sha256 == whole.state_sha256
    assert died.parity.passed, died.parity.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "struck"),
    [
        pytest.param("torch:ddp", "rank-1 13", marks=pytest.mark.torch),
        pytest.param("torch:fsdp", "rank-0 17", marks=pytest.mark.torch),
        pytest.param("tf:mirrored", "rank-0 13", marks=pytest.mark.tf),
        pytest.param("tf:multi_worker_mirrored", "worker-2 8", marks=pytest.mark.tf),
    ],
)
def test_so_does_one_of_a_users_own_model(launcher: Launcher, tmp_path: Path, cell: str, struck: str) -> None:
    own = {"model": f"{OWN}:CNN", "data": f"{OWN}:images", "optimizer": "adamw", "steps": 24, "batch_size": 48}
    asked = Cell.parse(cell).apply_to(RunConfig(devices=4, keep_state=True, parity=True, **own))
    fragile = LentLauncher(launcher, "benchmarks.resuming.struck_worker")
    results = []
    for name, more in (("whole", {}), ("died", {"save_every": "5", "restarts": 1})):
        config = launcher.describe(dataclasses.replace(asked, out=str(tmp_path / name), **more))
        results.append(fragile.run(parse(config), launch_of(config), environment={STRUCK: struck if more else ""}))
    whole, died = results
    assert died.attempt == 2 and died.resumed_at == int(struck.split()[1]) // 5 * 5
    assert (died.losses, died.state_sha256) == (whole.losses, whole.state_sha256) and whole.state_sha256
    assert died.parity.passed, died.parity.reason


@pytest.mark.parametrize("cell", rows("tf:mirrored"))
def test_a_run_goes_on_with_fewer_devices_and_then_with_all(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    """4 devices, 2 after the kill since 3 do not divide the batch, and 4 again after the next checkpoint."""
    dtype, bound = ("float32", 1e-5) if cell == "torch:deepspeed" else ("float64", 1e-12)
    fields = {"steps": 300, "batch_size": 64, "dtype": dtype, "optimizer": "adamw"}
    alone = {"devices": 1, "dtype": "float64", "save_every": None, "parity": False, "workload": usual_of(cell)}
    oracle = take(launcher, "numpy:oracle", tmp_path / "whole", **fields | alone)
    kill, elastic = killer(tmp_path / "died", 45), {"save_every": "15", "restarts": 1, "elastic": "1:4"}
    died = take(launcher, cell, tmp_path / "died", kill, **elastic, **fields)
    assert died.attempt == 3 and died.config.devices == 4 and died.resumed_at is not None
    assert np.allclose(died.losses, oracle.losses, rtol=bound, atol=0) and len(died.losses) == 300
    assert died.parity.passed, died.parity.reason
    assert "--elastic 1:4" in died.command and "--devices" not in died.command
    assert ledger.main(["--examples", str(tmp_path / "died")]) == 0
    assert "Every example of steps 0 to 299 was gathered once: 19,200 in all." in capsys.readouterr().out


ORDERED = (
    "torch:ddp",
    "torch:c10d",
    "torch:zero1",
    "torch:zero2",
    "torch:fsdp",
    "tf:mirrored",
    "tf:multi_worker_mirrored",
)


@pytest.mark.parametrize("cell", [each for each in rows("torch:ddp") if each.values[0] in ORDERED])
def test_with_a_fixed_order_nothing_is_seen_of_that(launcher: Launcher, tmp_path: Path, cell: str) -> None:
    fields = {"steps": 24, "batch_size": 32, "optimizer": "adamw", "parity": False}
    whole = take(launcher, f"{cell}+fixed_order=4", tmp_path / "whole", devices=1, save_every=None, **fields)
    elastic = {"save_every": "5", "restarts": 1, "elastic": "1:4"}
    run, launch = ask(f"{cell}+fixed_order=4", tmp_path / "died", **elastic, **fields)
    died = take_struck(launcher, run, launch, 13)
    assert died.attempt == 3 and died.config.devices == 4
    assert died.losses == whole.losses and died.state_sha256 == whole.state_sha256 != ""


@pytest.mark.parametrize(
    ("cell", "fields", "told"),
    [
        ("torch:ddp", {"restarts": 0}, "is for runs that are started again; add --restarts, as in --restarts 10"),
        ("torch:ddp", {"devices": 2}, "starts with 4 devices, and 2 are requested; leave out --devices or --mesh"),
        ("torch:hybrid+mesh=pipe=2,tensor=2", {"devices": None}, "does not say which axis of --mesh pipe=2,tensor=2"),
        ("torch:ddp", {"compress": "int8"}, "can take this step only on 4 devices; choose a global batch"),
        ("torch:ddp", {"elastic": "4"}, "--elastic is '4'; give the fewest and the most devices, as in 1:4"),
        ("torch:ddp", {"elastic": "4:1"}, "--elastic is '4:1'; give the fewest and the most devices, as in 1:4"),
    ],
)
@pytest.mark.torch
def test_other_devices_than_it_can_have_are_refused(tmp_path: Path, cell: str, fields: dict, told: str) -> None:
    fields = {"restarts": 1, "elastic": "1:4", **fields}
    technique = f"+compress={fields.pop('compress')}" if "compress" in fields else ""
    with pytest.raises(ConfigError, match=re.escape(told)):
        check_launch(*ask(f"{cell}{technique}", tmp_path / "run", **fields))


@pytest.mark.torch
def test_what_is_damaged_is_left_out_and_what_is_of_another_run_is_refused(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a result, as a run that was cut off; its newest checkpoint has lost its end, and then the next one as well."""
    out, fields = tmp_path / "run", {"devices": 1, "keep": 3, "steps": 24, "save_every": "6", "parity": False}
    patient = LentLauncher(launcher, "tests.common.runtime.patient_worker")
    whole = take(patient, "torch:single", out, **fields)
    assert [each.commit.step for each in find_checkpoints(out)] == [18, 12, 6]
    assert whole.saves.steps == (6, 12, 18) and not whole.saves.failed
    (out / "result.json").unlink()
    newest, second, _ = (out / FOLDER / f"step-{step:06d}" for step in (18, 12, 6))
    os.truncate(newest / STATE, 100)
    (second / COMMIT).write_text("{}")
    found = list(find_checkpoints(out))
    assert [type(each) for each in found] == [Damaged, Damaged, Checkpoint]
    run_command.say_left_out(out)
    left_out = capsys.readouterr().err.splitlines()
    assert [line.partition(" is left out: ")[0] for line in left_out] == [f"samestep: {newest}", f"samestep: {second}"]
    run, launch = ask("torch:single", out, **fields)
    again = patient.run(run, launch, resume=out)
    assert (again.resumed_at, again.lost_steps) == (6, 18)
    assert "Resumed: at step 0; 18 steps" in saved(dataclasses.replace(again, resumed_at=None))  # nothing was whole
    assert (again.losses, again.state_sha256) == (whole.losses, whole.state_sha256)
    with opened(out) as root:  # what both attempts wrote is still ours, so `samestep clean` removes it
        assert {METRICS, "examples-rank-0.jsonl"} <= (present(root) or {}).keys()
    names = ["step-000018-2", "step-000018", "step-000012-2", "step-000012", "step-000006"]  # three are whole
    assert [each.name for each in find_folders(out)] == names
    (out / "result.json").unlink()
    other, _ = ask("torch:single", out, seed=1, **fields)
    with pytest.raises(
        ConfigError, match=r"step-000018-2 belongs to another run than the config.json above it; move it away\."
    ):
        newest_of(out, digest_program(other, launch))
    (out / METRICS).write_text((out / METRICS).read_text().replace('"losses": [', '"losses": [1'))
    with pytest.raises(ConfigError, match=r"does not have the losses that lead to .*; start another run\."):
        launcher.run(run, launch, resume=out)


@pytest.mark.torch
def test_a_disk_that_is_full_ends_no_run(launcher: Launcher, tmp_path: Path) -> None:
    """A file has the name of the folder: nothing can be saved, and the result says so."""
    out = tmp_path / "run"
    run, launch = ask("torch:single", out, devices=1)
    prepare(run, launch)
    (out / FOLDER).write_text("mine")
    result = launcher.run(run, launch, resume=out)
    assert result.saves.steps == () and result.saves.failed
    assert len(result.saves.failed) + result.saves.skipped == 4
    assert "Not saved: step " in saved(result) and (out / FOLDER).read_text() == "mine"


@pytest.mark.parametrize(("text", "interval"), [("50", Interval(steps=50)), ("1.5s", Interval(seconds=1.5))])
def test_how_often_is_steps_or_seconds(text: str, interval: Interval) -> None:
    assert read_interval(text) == interval


@pytest.mark.parametrize("text", ["0", "0s", "-1", "5m", "", "1e9", "5 s"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"--save-every is .*; give a number of steps, as in 50, or of seconds, as in 30s\."
    ):
        parse(RunConfig(strategy="ddp", save_every=text))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([], "it holds no run; name a directory with a config.json."),
        (["config.json", "result.json"], "it holds a finished run; --start-from continues from where it ended."),
    ],
)
def test_only_a_run_that_was_cut_off_is_gone_on_with(tmp_path: Path, made: list[str], told: str) -> None:
    for name in made:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match=re.escape(f"--resume {tmp_path}: {told}")):
        run_command.main(["--resume", str(tmp_path)])
    with pytest.raises(ConfigError, match=r"--resume takes the directory of a run, and nothing else"):
        run_command.main(["torch:ddp", "--resume", str(tmp_path)])


@pytest.mark.torch
def test_what_does_not_fit_on_the_disk_is_refused(tmp_path: Path) -> None:
    run, launch = ask("torch:single", tmp_path / "run", devices=1, keep=10**9)
    with pytest.raises(Unavailable, match=r"--keep 1000000000 needs .* GiB free; keep fewer, or name another --out\."):
        check_launch(run, launch)


def test_checkpoints_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = TrainState(7, {"w": np.ones(3)}, {})
    open_directory(tmp_path)
    for step in (7, 14):
        write_checkpoint(tmp_path, dataclasses.replace(state, step=step), Commit(step, 0, 1, "program", "losses"))
    assert checkpoints.main([str(tmp_path)]) == 0
    (tmp_path / FOLDER / "step-000014" / STATE).unlink()
    assert checkpoints.main([str(tmp_path)]) == 1
    assert "no: state.npz: No such file or directory" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="holds no checkpoints; `samestep run --save-every 50` saves them"):
        checkpoints.main([str(tmp_path / FOLDER)])


def test_nothing_of_a_save_that_fails_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_directory(tmp_path)
    state = TrainState(7, {"w": np.ones(3)}, {})
    commit = Commit(7, 0, 1, "program", "losses")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("dump_state", "read_sha256", "rename_folder"):
        with monkeypatch.context() as patched:
            patched.setattr(writing, name, full)
            with pytest.raises(OSError, match="No space left"):
                write_checkpoint(tmp_path, state, commit)
        assert list((tmp_path / FOLDER).iterdir()) == []
    write_checkpoint(tmp_path, state, commit)
    discard(tmp_path)
    assert list(tmp_path.iterdir()) == []
