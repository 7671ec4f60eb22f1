import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.engines.commands import ROOT, processes_with
from tests.engines.host_box import needs_root
from tests.engines.keeper import MARK

STARTED = """
import subprocess, tempfile, time
from tests.engines.keeper import kept, own_name
from tests.engines.host_box import switched
with kept(), switched(1) as hosts:
    tempfile.mkdtemp(prefix=f"{own_name()}-")
    subprocess.Popen(["setsid", "bash", "-c", "sleep 60 & echo started; sleep 60"])  # of no group and no session of ours
    time.sleep(60)
"""


@needs_root
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_pytest_that_is_ended_or_killed(how: signal.Signals) -> None:
    line = [sys.executable, "-c", STARTED]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None and tests.stdout.readline() == "started\n"
        name = f"samestep-{tests.pid}"

        def left() -> list[object]:
            made = [*Path("/run/netns").glob(f"{name}-*"), *Path(tempfile.gettempdir()).glob(f"{name}-*")]
            return [*processes_with(MARK, name), *made]

        found = len(left())
        tests.send_signal(how)
    assert found >= 2 + 2 + 2, "two processes, two namespaces, a folder and the names of hosts"
    deadline = time.monotonic() + 20
    while left():
        assert time.monotonic() < deadline, left()
        time.sleep(0.05)
