import os
import subprocess
from pathlib import Path

import pytest

from samestep.common.runtime.processes import read_environment


def test_the_environment_of_a_process_that_changes_its_program_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    there, empty = Path.read_bytes, [b"", b""]  # as Linux shows it in the middle of execve
    monkeypatch.setattr(Path, "read_bytes", lambda path: empty.pop() if empty else there(path))
    assert read_environment(os.getpid()) == there(Path("/proc/self/environ")).split(b"\0") != [b""]


def test_the_environment_of_a_process_without_one_is_empty() -> None:
    with subprocess.Popen(["/usr/bin/sleep", "60"], env={}) as process:
        assert read_environment(process.pid) == [b""]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert b"".join(read_environment(process.pid)) == b""
    assert read_environment(process.pid) == []
