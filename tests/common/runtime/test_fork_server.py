"""A fork server, what is above it, and what its workers started: who ends, who is named, and that nothing is left."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.parent.asking import Question, ask
from samestep.common.runtime.parent.processes import started
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.parent.processes.started import hold_signals
from samestep.common.runtime.processes import look
from samestep.experiments.cli.ending import run_command
from tests.common.runtime.offspring_worker import COUNTS, ENDS, IMPORT_SECONDS, KINDS, STARTS
from tests.processes import alive, all_end, descendants

ROOT = Path(__file__).parents[3]
WORKER = "tests.common.runtime.offspring_worker"
SECONDS = 10.0
"""How long something may take on a busy machine that takes a tenth of a second otherwise."""
MEMBERS = {
    "server": "the numpy fork server",
    "keeper": "the keeper of the numpy fork server",
    "maker": "the network maker of the numpy fork server",
}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ForkClient]]:
    """Starts a server, and waits until all its processes are known; none may be left in the end."""
    before = descendants()
    made = []

    def start(import_seconds: float = 0.0) -> ForkClient:
        monkeypatch.setenv(IMPORT_SECONDS, str(import_seconds))
        made.append(ForkClient("numpy", 1, WORKER, str(tmp_path)))
        while not made[0]._processes.pid("server"):
            made[0].poll(0.1)
        return made[0]

    yield start
    for each in made:
        assert each.close() == []
    assert descendants() <= before


def wait_for_worker(client: ForkClient, directory: Path, starts: str, ends: str) -> tuple[int, set[int]]:
    """Starts a worker and waits until it has started what it should; returns its number, and whom it started."""
    number = client.start_worker(directory, directory / "log", {STARTS: starts, ENDS: ends}, None)
    deadline = time.monotonic() + 6 * SECONDS
    while not (directory / "ready").exists():
        assert time.monotonic() < deadline, (directory / "log").read_text()
        time.sleep(0.02)
    noted = directory / "pids"
    return number, {int(pid) for pid in noted.read_text().split()} if starts else set()


def failure(client: ForkClient) -> str:
    deadline = time.monotonic() + 3 * SECONDS
    try:
        while time.monotonic() < deadline:
            client.poll(0.1)
    except WorkerFailed as error:
        return str(error)
    raise AssertionError("nothing was said")


@contextlib.contextmanager
def program(text: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program that has printed that it is ready, and takes signals; it is killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n", started.communicate()
            yield started
        finally:
            started.kill()


# --- during the import ------------------------------------------------------------------------------------------------


def test_a_server_that_imports_is_ended_at_once(client: Callable[..., ForkClient]) -> None:
    importing, began = client(300.0), time.monotonic()
    there = descendants(importing._process.pid)
    assert len(there) == 2
    assert importing.close() == []
    assert alive(there) == set()
    assert importing._process.returncode == 0, "the keeper has the kernel's word that nothing is left"
    assert time.monotonic() - began < 0.5 * SECONDS


@pytest.mark.parametrize("import_seconds", [300.0, 0.0], ids=["import", "ready"])
@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_is_killed_is_named(
    client: Callable[..., ForkClient], member: str, import_seconds: float
) -> None:
    server = client(import_seconds)
    if not import_seconds:
        server.wait_ready()
    there = {server._process.pid, *descendants(server._process.pid)}
    os.kill(server._processes.pid(member), signal.SIGKILL)
    assert (
        failure(server)
        == f"{MEMBERS[member]} was killed by SIGKILL, and the processes that it had started ended with it"
    )
    assert all_end(there, SECONDS) <= {server._process.pid}
    assert not server.alive


@pytest.mark.parametrize("moment", ["import", "ready", "a worker runs"])
@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_is_stopped_is_named_in_time(
    client: Callable[..., ForkClient], tmp_path: Path, member: str, moment: str
) -> None:
    server = client(300.0 if moment == "import" else 0.0)
    server.timeout_seconds = 1.0
    if moment == "ready":
        server.wait_ready()
    if moment == "a worker runs":
        wait_for_worker(server, tmp_path, "", "stays")
    there = descendants(server._process.pid)
    os.kill(server._processes.pid(member), signal.SIGSTOP)
    began = time.monotonic()
    assert failure(server) == f"{MEMBERS[member]} made no progress for 1 s; it is stopped, as by SIGSTOP"
    assert 1.0 < time.monotonic() - began < SECONDS
    assert alive(there) == set()
    assert not server.alive


def test_a_member_that_is_stopped_for_a_moment_is_left_alone(client: Callable[..., ForkClient]) -> None:
    server = client()
    server.timeout_seconds = 1.0
    for _ in range(3):
        os.kill(server._processes.pid("server"), signal.SIGSTOP)
        server.poll(0.0)
        time.sleep(0.5)
        os.kill(server._processes.pid("server"), signal.SIGCONT)
        server.poll(0.0)
    server.wait_ready()


# --- what a worker started --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["well", "exits", "is killed"])
def test_what_a_worker_started_ends_with_the_last_of_the_workers(
    client: Callable[..., ForkClient], tmp_path: Path, ends: str
) -> None:
    server = client()
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    other, _ = wait_for_worker(server, tmp_path / "second", "", "stays")
    number, theirs = wait_for_worker(server, tmp_path / "first", ",".join(KINDS), ends)
    assert len(theirs) == sum(COUNTS.values())
    ended = []
    while not ended:
        ended = [answer["ended"] for answer in server.poll(0.1) if "ended" in answer]
    assert ended == [number]
    assert len(alive(theirs)) >= 1, "another worker of the run may need it"
    server.signal_worker(other, signal.SIGKILL)
    while other not in ended:
        ended += [answer["ended"] for answer in server.poll(0.1) if "ended" in answer]
    assert alive(theirs) == set()
    assert server.alive


@pytest.mark.parametrize("who", ["the launcher", "server", "keeper", "close"])
def test_what_a_worker_started_ends_with_whoever_is_killed(
    client: Callable[..., ForkClient], tmp_path: Path, who: str
) -> None:
    if who == "the launcher":
        with program(LAUNCHER, str(tmp_path), ",".join(KINDS)) as launcher:
            theirs = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
            there = descendants(launcher.pid)
            launcher.kill()
    else:
        server = client()
        _, theirs = wait_for_worker(server, tmp_path, ",".join(KINDS), "stays")
        there = descendants(server._process.pid)
        if who == "close":
            assert server.close() == []
            assert alive(there | theirs) == set()
        else:
            os.kill(server._processes.pid(who), signal.SIGKILL)
            assert failure(server).startswith(f"{MEMBERS[who]} was killed by SIGKILL")
    assert len(theirs) == sum(COUNTS.values())
    assert all_end(there | theirs, SECONDS) == set()


LAUNCHER = f"""
import sys, time
from pathlib import Path
from samestep.common.runtime.parent.processes.fork_client import ForkClient

directory = Path(sys.argv[1])
client = ForkClient("numpy", 1, "{WORKER}", str(directory))
if len(sys.argv) > 2:
    from tests.common.runtime.test_fork_server import wait_for_worker
    wait_for_worker(client, directory, sys.argv[2], "stays")
print("ready", flush=True)
client.wait_ready()
time.sleep(300)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.03, 0.1, 1.0])
def test_a_launcher_that_is_killed_during_the_import_leaves_nothing(tmp_path: Path, seconds: float) -> None:
    with program(LAUNCHER, str(tmp_path), **{IMPORT_SECONDS: "300"}) as launcher:
        time.sleep(seconds)
        there = descendants(launcher.pid)
        assert there
        launcher.kill()
        assert all_end(there, 0.5 * SECONDS) == set()
        assert not [pid for pid in descendants(1) if str(tmp_path) in environment_of(pid)]


def environment_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


# --- signals ----------------------------------------------------------------------------------------------------------

COMMAND = f"""
import sys
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.experiments.cli.ending import run_command

def main(arguments):
    client = ForkClient("numpy", 1, "{WORKER}", sys.argv[1])
    print("ready", flush=True)
    client.wait_ready()
    return 0

run_command(main, [])
"""


@pytest.mark.parametrize("names", ["INT INT", "TERM INT", "HUP TERM", "INT QUIT INT", "INT TERM HUP"])
def test_signals_during_the_import_end_everything_before_it_is_said(tmp_path: Path, names: str) -> None:
    first, *others = (signal.Signals[f"SIG{name}"] for name in names.split())
    with program(COMMAND, str(tmp_path), **{IMPORT_SECONDS: "300"}) as command:
        there, began = descendants(command.pid), time.monotonic()
        for number in (first, *others):
            command.send_signal(number)
            time.sleep(0.05)
        assert command.stderr is not None
        how = "interrupted" if first == signal.SIGINT else f"ended by {first.name}"
        assert command.stderr.readline() == f"samestep: {how}; nothing is left running.\n"
        assert alive(there) == set()
        assert command.wait(SECONDS) == 128 + first
        assert time.monotonic() - began < 0.5 * SECONDS


def test_an_interrupt_that_python_ignores_comes_again(tmp_path: Path) -> None:
    """As in a callback of the import system, where one in a hundred arrives; here in what ends an object."""
    line = (
        "import os, signal, time; from samestep.experiments.cli.ending import run_command\n"
        "class Ends:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGTERM); time.sleep(1)\n"
        "run_command(lambda given: Ends() and None or time.sleep(100), [])"
    )
    done = subprocess.run(
        [sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (143, "samestep: ended by SIGTERM; nothing is left running.\n")


def test_signals_wait_until_something_is_done() -> None:
    came = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: came.append(number))
    try:
        with hold_signals():
            signal.raise_signal(signal.SIGHUP)
            assert came == []
        assert came == [signal.SIGHUP]
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_ends_what_it_started_and_nothing_else(client: Callable[..., ForkClient], tmp_path: Path) -> None:
    theirs, ours = client(300.0), []
    with pytest.raises(SystemExit):
        run_command(lambda given: ours.append(ForkClient("numpy", 1, WORKER, str(tmp_path))) or 0, [])
    assert [theirs.alive, ours[0].alive] == [True, False]


def test_what_cannot_be_ended_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ourselves = look(os.getpid())
    monkeypatch.setattr(started, "end_all", lambda before: [ourselves])
    with pytest.raises(SystemExit):
        run_command(lambda given: 0, [])
    told = capsys.readouterr().err
    assert f"{os.getpid()} (" in told and "still running" in told


def test_files_of_the_user_do_not_take_the_place_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("queue", "random", "signal", "types"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the one of Python')")
    monkeypatch.chdir(tmp_path)
    client = ForkClient("numpy", 1, "samestep.common.runtime.worker.worker", str(tmp_path))
    try:
        client.wait_ready()
    finally:
        assert client.close() == []
    assert ask([Question(module="samestep.common.runtime.topology", late="late", failed="failed")], SECONDS) == [None]
