"""Signals that `samestep record` gets are the command's: what a process sends is passed on, what is typed has come already."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from samestep.common.runtime.processes import look
from tests.recording.records import ROOT

COUNTS = """
import os, signal, sys, time
came = []
for each in ("INT", "QUIT", "TERM", "HUP", "USR1", "USR2"):
    signal.signal(getattr(signal, "SIG" + each), lambda number, _: came.append(signal.Signals(number).name))
print("ready", flush=True)
if "to all" in sys.argv:
    os.killpg(0, signal.SIGUSR1)
ends = time.monotonic() + 60
while not came and time.monotonic() < ends:
    time.sleep(0.01)
time.sleep(1)
print(*came, flush=True)
os._exit(7)
"""

CONTROLLED = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
"""Makes the terminal that is given as input that of the session."""


@contextmanager
def recorded(tmp_path: Path, stdin: int, before: str = "pass", *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that says which signals it got, recorded in a session of its own, once it waits for them."""
    record = [
        sys.executable,
        "-m",
        "samestep",
        "record",
        "--out",
        str(tmp_path / "out"),
        "--",
        sys.executable,
        "-c",
        COUNTS,
        *arguments,
    ]
    line = [sys.executable, "-c", f"import os, signal, sys; {before}; os.execv(sys.executable, {record!r})"]
    with subprocess.Popen(
        line, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def await_neighbour(pid: int) -> int:
    """Waits until `record` has started the process beside the command, which it waits for; returns the command's number.

    Whoever stops both before that, and has only one go on, leaves it waiting.
    """
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        command, *others = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if [Path(f"/proc/{each}/comm").read_text() for each in others] == ["cat\n"]:
            return int(command)
        time.sleep(0.01)
    raise AssertionError("no process is beside the command")


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_signal_that_is_sent_to_record_reaches_the_command_once(tmp_path: Path, name: str) -> None:
    with recorded(tmp_path, subprocess.DEVNULL) as process:
        process.send_signal(signal.Signals[name])
        said, error = process.communicate(timeout=60)
    assert (said, process.returncode) == (f"{name}\n", 7), error


def test_a_signal_that_is_sent_to_record_and_to_its_group_comes_once(tmp_path: Path) -> None:
    """`timeout` sends both. What else comes to the group meanwhile comes once as well."""
    with recorded(tmp_path, subprocess.DEVNULL) as process:
        process.send_signal(signal.SIGTERM)
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGUSR2)
        said, error = process.communicate(timeout=60)
    assert (sorted(said.split()), process.returncode) == (["SIGTERM", "SIGUSR2"], 7), error


def test_what_is_sent_to_a_group_and_later_to_record_comes_twice(tmp_path: Path) -> None:
    with recorded(tmp_path, subprocess.DEVNULL) as process:
        os.killpg(process.pid, signal.SIGUSR1)
        time.sleep(0.25)
        process.send_signal(signal.SIGUSR1)
        said, error = process.communicate(timeout=60)
    assert (said, process.returncode) == ("SIGUSR1 SIGUSR1\n", 7), error


def test_what_is_sent_to_all_of_its_name_reaches_the_command(tmp_path: Path) -> None:
    """As `pkill -f "samestep record"` and `killall samestep` do it."""
    with recorded(tmp_path, subprocess.DEVNULL) as process:
        theirs = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        for number in [each.name for each in Path("/proc").iterdir() if each.name.isdecimal()]:
            with suppress(OSError):
                if theirs == Path(f"/proc/{number}/cmdline").read_bytes():
                    os.kill(int(number), signal.SIGTERM)
        said, error = process.communicate(timeout=60)
    assert (said, process.returncode) == ("SIGTERM\n", 7), error


def test_what_is_typed_and_later_sent_to_record_comes_twice(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    try:
        with recorded(tmp_path, slave, CONTROLLED) as process:
            os.write(master, b"\x03")
            time.sleep(0.25)
            process.send_signal(signal.SIGINT)
            said, error = process.communicate(timeout=60)
        assert (said, process.returncode) == ("SIGINT SIGINT\n", 7), error
    finally:
        os.close(master)
        os.close(slave)


def test_a_command_that_was_stopped_with_its_group_and_goes_on_alone_ends_it(tmp_path: Path) -> None:
    with recorded(tmp_path, subprocess.DEVNULL) as process:
        command = await_neighbour(process.pid)
        os.killpg(process.pid, signal.SIGSTOP)
        for each in (command, process.pid):  # as `kill -CONT` of the two that one knows
            os.kill(each, signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 7, error


@pytest.mark.parametrize(("key", "name"), [(b"\x03", "SIGINT"), (b"\x1c", "SIGQUIT")])
def test_what_is_typed_at_a_terminal_comes_once(tmp_path: Path, key: bytes, name: str) -> None:
    master, slave = pty.openpty()
    try:
        with recorded(tmp_path, slave, CONTROLLED) as process:
            os.write(master, key)
            said, error = process.communicate(timeout=60)
        assert (said, process.returncode) == (f"{name}\n", 7), error
    finally:
        os.close(master)
        os.close(slave)


def test_a_command_is_told_of_a_hangup_which_the_kernel_tells_the_first_process_of_a_session_alone(
    tmp_path: Path,
) -> None:
    master, slave = pty.openpty()
    with recorded(tmp_path, slave, CONTROLLED) as process:
        os.close(slave)
        os.close(master)
        said, error = process.communicate(timeout=60)
    assert (said, process.returncode) == ("SIGHUP\n", 7), error


def test_what_a_command_sends_to_its_group_does_not_come_back(tmp_path: Path) -> None:
    with recorded(tmp_path, subprocess.DEVNULL, "pass", "to all") as process:
        said, error = process.communicate(timeout=60)
    assert (said, process.returncode) == ("SIGUSR1\n", 7), error


def test_an_exit_code_is_passed_on_where_nobody_wants_to_hear_of_children(tmp_path: Path) -> None:
    """And the command has the files that a shell passes on, as in `python <(generate)`. What comes after its end is nobody's."""
    inherited = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.dup2(1, 9)"
    with recorded(tmp_path, subprocess.DEVNULL, inherited) as process:
        child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
        assert Path(f"/proc/{child}/fd/9").exists()
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(int(child), signal.SIGTERM)
        while (running := look(int(child))) and running.state != "Z":
            time.sleep(0.02)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 7, error
