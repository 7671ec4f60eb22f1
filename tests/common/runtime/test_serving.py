"""A process that only serves: it answers for what it sends, shows that it is alive, and is missed when it is not."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.runtime.records import ProcessRecord
from common.runtime.serving import ANSWER_SECONDS, ask, usage
from common.runtime.traffic import Traffic

SERVES = """
import pathlib, sys
from common.runtime.records import ProcessRecord
from common.runtime.serving import serve
serve(ProcessRecord(pathlib.Path(sys.argv[1]), "worker-0", 1, 0.1), 0.1)
"""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SERVES, str(tmp_path)])
    deadline = time.monotonic() + 30
    while ask(tmp_path, "worker-0") is None and time.monotonic() < deadline:
        time.sleep(0.05)
    yield process
    process.kill()
    process.wait()


def test_it_answers_for_itself(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    answer = ask(tmp_path, "worker-0")
    assert answer is not None
    assert answer.keys() == usage().keys()
    assert answer["sent_bytes"] == answer["received_bytes"] == 0, "asking is no traffic"
    assert answer["peak_rss_bytes"] > 2**20


def test_it_shows_that_it_is_alive(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    path = tmp_path / "process-worker-0.json"
    first, deadline = path.stat().st_mtime_ns, time.monotonic() + 30
    assert json.loads(path.read_text())["phase"] == "serve"
    while path.stat().st_mtime_ns == first and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.stat().st_mtime_ns > first


def test_nobody_waits_for_one_that_is_stopped_or_gone(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    os.kill(serving.pid, signal.SIGSTOP)
    start = time.monotonic()
    assert ask(tmp_path, "worker-0") is None
    assert time.monotonic() - start < ANSWER_SECONDS + 10
    serving.kill()
    serving.wait()
    assert ask(tmp_path, "worker-0") is None
    assert ask(tmp_path, "worker-1") is None, "there never was one"


def test_a_first_call_is_not_usual_traffic_and_one_that_died_is_silent(tmp_path: Path) -> None:
    traffic = Traffic(ProcessRecord(tmp_path, "chief-0", 0), {"worker-0": 1, "worker-1": 2})
    none = {"sent_bytes": 0, "received_bytes": 0}
    for chief, one, other in [(10, 100, 900), (10, 200, 0), (10, 0, 200), (10, 50, 150), (10, 202, None)]:
        sent = {"chief-0": chief, "worker-0": one, "worker-1": other}
        after = {
            role: None if count is None else {"sent_bytes": count, "received_bytes": 0} for role, count in sent.items()
        }
        traffic.count(dict.fromkeys(sent, none), after, 2)
    assert traffic.own()["sent_bytes_per_step"] == 5
    shares = [row["sent_bytes_per_step"] for row in traffic.served()]
    assert shares == [(200 + 0 + 50 + 202) / 2 / 4, (0 + 200 + 150 + 0) / 2 / 4]
