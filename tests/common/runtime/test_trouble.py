"""Whatever befalls a run: it ends within its deadline, says who failed and how, and leaves no process behind."""

import contextlib
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError, Diverged, SamestepError, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import find_folders
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.parent.judging import finishing
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments import run
from samestep.experiments.cli.ending import run_command
from tests.lent import LentLauncher
from tests.processes import all_end, descendants

pytestmark = pytest.mark.torch

ROOT = str(Path(__file__).parents[3])
SAID = "the last thing it said"


@pytest.fixture(scope="module")
def faulty(launcher: Launcher) -> Launcher:
    launcher.warm(["torch"])
    return LentLauncher(launcher, "tests.common.runtime.fault_worker")


@dataclasses.dataclass
class Trouble:
    """How a run ended.

    Attributes:
        error: What the parent raised.
        seconds: How long it took.
        left: What `error.json` says.
        run: The run directory.
    """

    error: SamestepError
    seconds: float
    left: dict[str, str]
    run: Path


@pytest.fixture
def befallen(faulty: Launcher, tmp_path: Path) -> Callable[..., Trouble]:
    def befallen(fault: str, devices: int = 1, rank: int | None = None, **fields: object) -> Trouble:
        asked = RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=8, timeout_seconds=20.0, parity=False)
        asked = dataclasses.replace(asked, strategy="ddp" if devices > 1 else "single", devices=devices)
        asked = dataclasses.replace(asked, out=str(tmp_path / "run"), **fields)
        environment = {"FAULT": fault} | ({} if rank is None else {"FAULT_RANK": str(rank)})
        before, started = descendants(), time.monotonic()
        with pytest.raises(SamestepError) as caught:
            faulty.run(parse(asked), launch_of(asked), environment=environment)
        seconds = time.monotonic() - started
        assert descendants() == before
        assert not (tmp_path / "run" / "result.json").exists()
        left = json.loads((tmp_path / "run" / "error.json").read_text())
        return Trouble(caught.value, seconds, left, tmp_path / "run")

    return befallen


def tells(trouble: Trouble, role: str, *fragments: str) -> None:
    """The message names the role, the log's path and what else there is to say; `error.json` says the same."""
    message = str(trouble.error)
    assert isinstance(trouble.error, WorkerFailed)
    assert trouble.left["message"] == message
    assert trouble.left["type"] == "WorkerFailed"
    wanted = [f"{role} ", f"log: {trouble.run}/{role}.log", *fragments]
    assert [fragment for fragment in wanted if fragment not in message] == [], message


def test_nothing_befalls_a_run_by_itself(faulty: Launcher, tmp_path: Path) -> None:
    asked = RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=8, parity=False, out=str(tmp_path / "run"))
    assert faulty.run(parse(asked), launch_of(asked), environment={"FAULT": "none"}).status == "trained"
    assert not (tmp_path / "run" / "error.json").exists()


@pytest.mark.parametrize(("devices", "rank"), [(1, None), (2, 1)])
def test_a_worker_that_raises(befallen: Callable[..., Trouble], devices: int, rank: int | None) -> None:
    trouble = befallen("raises", devices, rank)
    tells(trouble, f"rank-{rank or 0}", "exit code 1", "RuntimeError: the device fell off the bus", "and rolled away")
    assert trouble.seconds < 30


@pytest.mark.parametrize(("devices", "rank"), [(1, None), (2, 0), (2, 1)])
def test_a_worker_that_exits(befallen: Callable[..., Trouble], devices: int, rank: int | None) -> None:
    trouble = befallen("exits", devices, rank)
    tells(trouble, f"rank-{rank or 0}", "exit code 7", SAID, "phase: train")
    assert trouble.seconds < 30


@pytest.mark.parametrize(("devices", "rank"), [(1, None), (2, 0), (2, 1)])
def test_a_worker_that_is_killed(befallen: Callable[..., Trouble], devices: int, rank: int | None) -> None:
    trouble = befallen("killed", devices, rank)
    tells(trouble, f"rank-{rank or 0}", "was killed by SIGKILL", SAID, "phase: train")
    assert trouble.seconds < 30


@pytest.mark.parametrize(("devices", "rank"), [(1, None), (2, 1)])
def test_native_code_that_crashes(befallen: Callable[..., Trouble], devices: int, rank: int | None) -> None:
    trouble = befallen("crashes", devices, rank)
    tells(trouble, f"rank-{rank or 0}", "was killed by SIGSEGV", f"{SAID}", " string_at)", "phase: train")
    assert "Fatal Python error" not in str(trouble.error)
    assert "in read_nowhere" in (trouble.run / f"rank-{rank or 0}.log").read_text()


def test_a_loss_that_diverges_is_told_even_if_it_takes_another_process_along(
    befallen: Callable[..., Trouble],
) -> None:
    trouble = befallen("diverges_and_takes_the_other_along", 2)
    assert isinstance(trouble.error, Diverged)
    assert str(trouble.error) == trouble.left["message"] == "the loss of step 3 is nan"


def test_a_worker_that_hangs_in_its_first_step(
    befallen: Callable[..., Trouble], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samestep.common.runtime.parent.processes.watch.FIRST_STEP_FACTOR", 2)
    trouble = befallen("hangs_in_first_step", timeout_seconds=2.5)
    tells(trouble, "rank-0", "made no progress for 5 s", "phase: first step, step 0", "--timeout-seconds")
    assert 5 < trouble.seconds < 40


@pytest.mark.parametrize(("devices", "rank"), [(1, None), (2, 1), pytest.param(2, 0, marks=pytest.mark.slow)])
def test_a_worker_that_hangs_in_training(befallen: Callable[..., Trouble], devices: int, rank: int | None) -> None:
    trouble = befallen("hangs_in_training", devices, rank, timeout_seconds=2.5)
    tells(trouble, f"rank-{rank or 0}", "made no progress for 2.5 s", "phase: train", SAID, "--timeout-seconds")
    assert "at fault_worker.py:" in str(trouble.error)
    assert 2.5 < trouble.seconds < 40
    assert " in hang\n" in (trouble.run / f"rank-{rank or 0}.log").read_text()  # the stack, asked from outside


def test_a_framework_that_does_not_let_go_loses_nothing(
    faulty: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samestep.common.runtime.parent.processes.watch.TEARDOWN_SECONDS", 0.5)
    asked = RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=8, strategy="ddp", devices=2, parity=False)
    asked = dataclasses.replace(asked, out=str(tmp_path / "run"))
    before = descendants()
    result = faulty.run(parse(asked), launch_of(asked), environment={"FAULT": "hangs_in_teardown"})
    assert (result.status, len(result.losses)) == ("trained", 8)
    assert descendants() == before
    assert "in holds_on" in (tmp_path / "run" / "rank-0.log").read_text()
    assert "in holds_on" not in (tmp_path / "run" / "rank-1.log").read_text()


def test_a_worker_that_never_starts(befallen: Callable[..., Trouble]) -> None:
    trouble = befallen("never_starts", timeout_seconds=1.0)
    tells(trouble, "rank-0", "never started", SAID, "--timeout-seconds")
    assert 1 < trouble.seconds < 30


def test_a_worker_that_ends_at_once(befallen: Callable[..., Trouble]) -> None:
    trouble = befallen("ends_at_once")
    tells(trouble, "rank-0", "exit code 3")
    assert trouble.seconds < 30


def test_a_slow_worker_is_left_alone_while_it_makes_progress(faulty: Launcher, tmp_path: Path) -> None:
    asked = RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=8, parity=False, out=str(tmp_path / "run"))
    asked = dataclasses.replace(asked, timeout_seconds=3.0)
    started = time.monotonic()
    assert faulty.run(parse(asked), launch_of(asked), environment={"FAULT": "is_slow_but_alive"}).status == "trained"
    assert time.monotonic() - started > 2 * asked.timeout_seconds


# --- a full disk ------------------------------------------------------------------------------------------------------

FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("fault", "phase"),
    [("full_at_metrics", "phase: first step"), ("full_at_state", "phase: evaluate"), ("full_at_everything", FULL)],
)
def test_a_disk_that_is_full(befallen: Callable[..., Trouble], fault: str, phase: str) -> None:
    trouble = befallen(fault, keep_state=True)
    tells(trouble, "rank-0", "exit code 1", f"OSError: [Errno 28] {FULL}", phase)
    assert "\n" not in str(trouble.error), "no code of ours is the cause"
    assert trouble.seconds < 30


def test_a_disk_so_full_that_the_log_stays_empty(befallen: Callable[..., Trouble]) -> None:
    trouble = befallen("full_log_too")
    tells(trouble, "rank-0", "exit code 1", f"OSError: [Errno 28] {FULL}")
    assert (trouble.run / "rank-0.log").read_text() == ""


def test_a_disk_so_full_that_the_worker_cannot_say_so(befallen: Callable[..., Trouble]) -> None:
    tells(befallen("full_in_place"), "rank-0", "exit code 1", FULL)  # from its log


def test_a_disk_that_is_full_when_the_result_is_written(
    faulty: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_room(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, FULL, str(path))

    monkeypatch.setattr(finishing, "write_json", no_room)
    told = in_process(monkeypatch, capsys, faulty, ["--no-parity", "--out", str(tmp_path / "run")], code=1)
    assert told.startswith(f"samestep: the run in {tmp_path}/run trained, but it has no result: ")
    assert FULL in told
    assert FULL in json.loads((tmp_path / "run" / "error.json").read_text())["message"]


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    faulty: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    asked = RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=3, parity=True, out=str(tmp_path / "run"))
    result = faulty.run(parse(asked), launch_of(asked))
    assert result.parity.passed, result.parity.reason
    assert not (tmp_path / "run" / "error.json").exists()


# --- the loss ---------------------------------------------------------------------------------------------------------


def in_process(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    launcher: Launcher,
    arguments: list[str],
    code: int,
) -> str:
    """Gives the run command on a launcher that is warm; returns the one line of its complaint."""
    monkeypatch.setattr(
        "samestep.common.runtime.parent.launcher.Launcher", lambda executor=None: contextlib.nullcontext(launcher)
    )
    common = ["--workload", "digits-mlp+width=32", "--batch-size", "48", "--steps", "40"]
    monkeypatch.setattr(sys, "argv", ["run", *common, *arguments])
    with pytest.raises(SystemExit) as ended:
        run_command(run.main)
    told = capsys.readouterr().err.splitlines()
    assert ended.value.code == code, told
    complaints = [line for line in told if line.startswith("samestep: ")]
    assert complaints == told[-1:]
    return told[-1]


@pytest.mark.parametrize("arguments", [[], ["--strategy", "ddp", "--devices", "2"]], ids=["single", "ddp"])
def test_a_diverging_loss_stops_the_run_and_names_its_step(
    faulty: Launcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    before = descendants()
    path = tmp_path / "run"
    told = in_process(
        monkeypatch, capsys, faulty, [*arguments, "--learning-rate", "1e6", "--out", str(path)], Diverged.exit_code
    )
    assert descendants() == before
    losses = [loss for line in (path / "metrics.jsonl").read_text().splitlines() for loss in json.loads(line)["losses"]]
    step = next(i for i, loss in enumerate(losses) if not abs(loss) < float("inf"))
    assert 0 < step < 40
    assert told == f"samestep: the loss of step {step} is {losses[step]}; try a smaller --learning-rate."
    assert json.loads((path / "error.json").read_text())["type"] == "Diverged"


# --- the fork server --------------------------------------------------------------------------------------------------


def test_a_fork_server_that_is_killed_is_named(tmp_path: Path) -> None:
    asked = RunConfig(
        framework="numpy", strategy="oracle", dtype="float64", workload="digits-mlp+width=32", steps=100_000
    )
    asked = dataclasses.replace(asked, batch_size=48, parity=False, out=str(tmp_path / "run"))
    before = descendants()

    def killed() -> None:
        with Launcher() as launcher:

            def kill(*_: object) -> None:
                os.kill(next(iter(launcher._servers.values()))._process.pid, signal.SIGKILL)

            launcher.run(parse(asked), launch_of(asked), kill)

    with pytest.raises(
        WorkerFailed,
        match="the numpy fork server was killed by SIGKILL, and the processes that it had started ended with it",
    ) as caught:
        killed()
    assert descendants() == before
    assert json.loads((tmp_path / "run" / "error.json").read_text())["message"] == str(caught.value)


# --- the parent -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def endless(path: Path, cell: str = "ddp --devices 2") -> Iterator[tuple[subprocess.Popen[str], set[int]]]:
    """A command in the middle of its training, and every process it has started."""
    arguments = f"{cell} --workload digits-mlp+width=32 --batch-size 48 --steps 100000000 --no-parity"
    line = [sys.executable, "-m", "samestep", "run", *arguments.split(), "--out", str(path)]
    environment = os.environ | {"TMPDIR": str(path.parent)}
    with subprocess.Popen(
        line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        try:
            deadline = time.monotonic() + 60
            while not (path / "metrics.jsonl").exists():
                assert command.poll() is None, command.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            started = descendants(command.pid)
            assert len(started) >= 2  # the fork server and a rank
            yield command, started
        finally:
            command.kill()


def test_control_c_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with endless(path) as (command, started):
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=60)
        assert all_end(started, 10) == set()
        assert command.returncode == 130
    assert told.splitlines()[-1] == "samestep: interrupted; nothing is left running."
    assert "Traceback" not in told
    assert json.loads((path / "error.json").read_text())["message"] == f"the run in {path} was interrupted"
    assert not (path / "result.json").exists()


@pytest.mark.parametrize(("victim", "number"), [("command", signal.SIGINT), ("rank-1", signal.SIGKILL)])
def test_a_run_that_is_cut_off_after_a_checkpoint_says_how_it_goes_on(
    tmp_path: Path, victim: str, number: signal.Signals
) -> None:
    path = tmp_path / "run"
    with endless(path, "ddp --devices 2 --save-every 1") as (command, _):
        deadline = time.monotonic() + 60
        while not find_folders(path):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        rank = json.loads((path / "process-rank-1.json").read_text())["pid"]
        os.kill(command.pid if victim == "command" else rank, number)
        _, told = command.communicate(timeout=60)
    lines = [line for line in told.splitlines() if line.startswith("samestep: ")]
    continued = f"samestep: continue with: samestep run --resume {path}"
    if victim == "command":
        assert lines == [continued, "samestep: interrupted; nothing is left running."]
    else:
        assert lines[0].startswith("samestep: rank-1 was killed by SIGKILL (phase: ") and lines[1:] == [continued]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_ends_a_run_in_order(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "run"
    with endless(path, "oracle --dtype float64") as (command, started):
        command.send_signal(number)
        time.sleep(0.1)  # two at once may come to two threads, and the second be first
        command.send_signal(signal.SIGTERM)  # whoever is impatient
        _, told = command.communicate(timeout=60)
        assert all_end(started, 10) == set()
        assert command.returncode == 128 + number
    assert told.splitlines()[-1] == f"samestep: ended by {number.name}; nothing is left running."
    assert "Traceback" not in told
    left = json.loads((path / "error.json").read_text())["message"]
    assert left == f"the run in {path} was interrupted by {number.name}"
    assert [each.name for each in tmp_path.iterdir()] == ["run"]  # and no scratch


@pytest.mark.slow
def test_a_machine_that_is_suspended_for_longer_than_the_timeout_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with endless(path, "ddp --devices 2 --timeout-seconds 3") as (command, started):
        everyone = [command.pid, *started]
        for number, seconds in ((signal.SIGSTOP, 5.0), (signal.SIGCONT, 1.0)):
            for pid in everyone:
                os.kill(pid, number)
            time.sleep(seconds)
        before = (path / "metrics.jsonl").stat().st_size
        time.sleep(4.5)  # for whoever has lost patience to say so
        assert command.poll() is None, command.communicate()
        deadline = time.monotonic() + 60  # on a busy machine a window is long
        while (path / "metrics.jsonl").stat().st_size == before:
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.05)
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=60)
        assert command.returncode == 130


def test_killing_the_parent_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with endless(path) as (command, started):
        command.kill()
        assert all_end(started, 30) == set()
    error = json.loads((path / "error.json").read_text())
    # The processes are ended one after the other, and none says that it lost the connection to one before it.
    assert "was cut off before it ended" in error["message"] and error["role"] == ""
    assert not (path / "result.json").exists()


# --- what others left -------------------------------------------------------------------------------------------------


def test_a_run_directory_is_not_run_twice(faulty: Launcher, tmp_path: Path) -> None:
    asked = RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=2, parity=False, out=str(tmp_path / "run"))
    checked = parse(asked), launch_of(asked)
    faulty.run(*checked)
    left = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ConfigError, match="already holds a run; nothing was overwritten"):
        faulty.run(*checked)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == left


def test_a_link_in_place_of_a_log_is_not_followed(faulty: Launcher, tmp_path: Path) -> None:
    """Somebody who may write the directory puts it there once the run is prepared."""
    (tmp_path / "precious").write_text("precious")
    asked = RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=2, parity=False, out=str(tmp_path / "run"))
    run, launch = parse(asked), launch_of(asked)
    directory = prepare(run, launch)
    (directory / "rank-0.log").symlink_to(tmp_path / "precious")
    with pytest.raises(WorkerFailed, match=r"run/rank-0\.log is not a plain file that samestep wrote"):
        faulty.execute(directory, run, launch)
    assert (tmp_path / "precious").read_text() == "precious"
    assert (directory / "rank-0.log").is_symlink()
