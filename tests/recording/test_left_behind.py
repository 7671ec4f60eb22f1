"""What a rerun leaves behind: it was started by nobody who would end it."""

import subprocess
import sys
from pathlib import Path

from samestep.common.runtime.processes import look
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.start import record_command

LEAVING = """
import os, subprocess, sys
serving = "import subprocess, time; time.sleep(1); print(subprocess.Popen(['sleep', '100']).pid, flush=True); time.sleep(100)"
child = subprocess.Popen([sys.executable, "-c", serving], start_new_session=True, stdout=open("later", "w"))
open("pid", "w").write(str(child.pid))
writing = "import pathlib, time; time.sleep(0.5); pathlib.Path('written').touch()"
subprocess.Popen([sys.executable, "-c", writing], start_new_session=True)
os._exit(7)
"""


def test_what_a_rerun_started_ends_with_it(tmp_path: Path) -> None:
    command = sys.executable, "-c", LEAVING
    ended = record_command(command, RecordOptions(str(tmp_path / "out")), subprocess.DEVNULL, tmp_path)
    assert ended.exit_code == 7
    for name in ("pid", "later"):  # of a server, and of what it started later
        left = look(int((tmp_path / name).read_text()))
        assert left is None or left.state == "Z", left
    assert (tmp_path / "written").exists()
