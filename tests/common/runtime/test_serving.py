"""A process that only serves: it answers for what it sends, shows that it is alive, and is missed when it is not."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from samestep.common.runtime.process_file import ProcessFile, read_life
from samestep.common.runtime.worker.traffic import Traffic
from samestep.common.runtime.worker.usage import ANSWER_SECONDS, Counters, ask
from tests.children import become_nobody, in_child

SERVES = """
import pathlib, sys
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.worker.usage import serve
serve(ProcessFile(pathlib.Path(sys.argv[1]), "worker-0", 1, 0.1), 0.1, lambda: False, *sys.argv[2:])
"""


@pytest.fixture(params=[(), ("127.0.0.1",)], ids=["one host", "several hosts"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SERVES, str(tmp_path), *request.param])
    deadline = time.monotonic() + 30
    while ask(tmp_path, "worker-0") is None and time.monotonic() < deadline:
        time.sleep(0.05)
    yield process
    process.kill()
    process.wait()


def test_it_answers_for_itself(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    answer = ask(tmp_path, "worker-0")
    assert isinstance(answer, Counters)
    assert answer.sent_bytes == answer.received_bytes == 0, "asking is no traffic"
    assert answer.peak_rss_bytes > 2**20
    again = ask(tmp_path, "worker-0")
    assert again is not None and again.sent_bytes == again.received_bytes == 0


@pytest.mark.parametrize("serving", [("127.0.0.1",)], indirect=True)
def test_a_port_answers_nobody_who_lacks_the_word(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    _, host, port, word = read_life(tmp_path, "worker-0").endpoint.split(":")
    for said in (b"0" * len(word), word[:-1].encode() + b"-", b"x"):
        with socket.create_connection((host, int(port)), timeout=30) as asking:
            assert asking.recv(1) == b"?"
            asking.sendall(said)
            with contextlib.suppress(ConnectionResetError):
                assert asking.recv(100) == b""
    assert ask(tmp_path, "worker-0") is not None


@pytest.mark.parametrize("serving", [()], indirect=True)
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be somebody else")
def test_it_answers_its_own_user_only(serving: subprocess.Popen[bytes], tmp_path: Path) -> None:
    endpoint = read_life(tmp_path, "worker-0").endpoint

    def attack() -> int:
        become_nobody()
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(f"\0{endpoint}")
            return len(asking.recv(100))

    assert in_child(attack) == 0
    assert ask(tmp_path, "worker-0") is not None


def test_its_name_cannot_be_taken_first(tmp_path: Path) -> None:
    """It is another one each time."""
    names = []
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", SERVES, str(tmp_path)])
        deadline = time.monotonic() + 30
        while not (life := read_life(tmp_path, "worker-0")).endpoint and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.wait()
        (tmp_path / "process-worker-0.json").unlink()
        names.append(life.endpoint)
    assert all(names)
    assert names[0] != names[1]


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


def test_windows_count_that_are_usual_and_in_which_all_answer(tmp_path: Path) -> None:
    traffic = Traffic(ProcessFile(tmp_path, "chief-0", 0), {"worker-0": 1, "worker-1": 2})
    none = Counters(sent_bytes=0, received_bytes=0, peak_rss_bytes=0)
    for chief, one, other in [
        (10, 100, 900),
        (10, 200, 0),
        (10, 0, 200),
        (10, 50, 150),
        (10, 10, None),
        (10, 10, None),
    ]:
        sent = {"chief-0": chief, "worker-0": one, "worker-1": other}
        after = {role: None if count is None else none._replace(sent_bytes=count) for role, count in sent.items()}
        traffic.open()
        traffic.add(dict.fromkeys(sent, none), after, 2)
    assert traffic.own(threads=1).sent_bytes_per_step == 5
    served = traffic.served(threads=1)
    assert [(usage.role, usage.rank) for usage in served] == [("worker-0", 1), ("worker-1", 2)]
    shares = [usage.sent_bytes_per_step for usage in served]
    assert shares == [(200 + 0 + 50) / 2 / 3, (0 + 200 + 150) / 2 / 3]


def test_one_that_never_answers_is_silent_and_hides_no_other(tmp_path: Path) -> None:
    traffic = Traffic(ProcessFile(tmp_path, "chief-0", 0), {"worker-0": 1, "far-0": 2})
    none = Counters(sent_bytes=0, received_bytes=0, peak_rss_bytes=0)
    before: dict[str, Counters | None] = {"chief-0": none, "worker-0": none, "far-0": None}
    traffic.open()
    traffic.add(before, before | {"worker-0": none._replace(sent_bytes=8)}, 2)
    assert [usage.sent_bytes_per_step for usage in traffic.served(threads=1)] == [4, 0]


@pytest.mark.parametrize("late", [0, 1])
def test_a_window_in_which_one_was_late_hides_no_other(tmp_path: Path, late: int) -> None:
    traffic = Traffic(ProcessFile(tmp_path, "chief-0", 0), {"ps-0": 1})
    none = Counters(sent_bytes=0, received_bytes=0, peak_rss_bytes=0)
    for window in range(2):
        traffic.open()
        before: dict[str, Counters | None] = {"chief-0": none, "ps-0": None if window == late else none}
        traffic.add(before, dict.fromkeys(before, none._replace(sent_bytes=8)), 2)
    (server,) = traffic.served(threads=1)
    assert server.sent_bytes_per_step == 4
