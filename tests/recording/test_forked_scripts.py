"""Scripts that do not end, or fail: no test passes then, and none of their processes is left."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samestep.common.runtime.processes import look
from tests.recording import records

ENDLESS = """
import os, socket, sys, time
connection, _ = socket.socket(fileno=0).accept()
connection.sendall(b"%d\\n" % os.getpid())
connection.recv(99)
if child := os.fork():
    print(child, file=open(sys.argv[1], "w"), flush=True)
connection.close()
time.sleep(100)
"""
ANSWER = """
import json, sys
from pathlib import Path
from tests.recording import run_many
run_many.SECONDS = 2
Path(sys.argv[2]).write_text(json.dumps(run_many.answer([(sys.argv[1], [each], None, 1) for each in ("one", "never")])))
"""


def test_what_a_process_forked_ends_with_it_where_it_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, start = tmp_path / "said", subprocess.Popen
    line = [sys.executable, "-c", ENDLESS, str(said)]
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: start(line, **options))
    with pytest.raises(ValueError, match="Expecting value"):
        records.run_forked("endless", [])
    ends = time.monotonic() + 10
    while (left := look(int(said.read_text()))) and left.is_alive and time.monotonic() < ends:
        time.sleep(0.01)
    assert not (left and left.is_alive)


@pytest.mark.torch
def test_what_is_killed_for_one_that_asked_answers_another() -> None:
    started = len(records._STARTED)
    one, other = records.Connection("torch"), records.Connection("torch")
    with pytest.raises(TypeError, match="not JSON serializable"):
        one.ask([object()])
    assert other.ask([]) == {"failed": "", "out": "", "err": ""}
    other.close()
    assert len(records._STARTED) <= started + 1, "one process has torch"


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "os._exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(100)"])
def test_a_script_that_fails_or_does_not_end_is_named(tmp_path: Path, ending: str) -> None:
    script, found = tmp_path / "script.py", tmp_path / "found.json"
    script.write_text(f"import os, time\nprint('begun', flush=True)\n{ending}\n")
    subprocess.run([sys.executable, "-c", ANSWER, str(script), str(found)], cwd=records.ROOT, timeout=60, check=True)
    said = json.loads(found.read_text())
    assert (said["failed"], said["out"]) == (f"{script} one", "begun\n")
