"""Reads records as tests want them: the statistics of whole tensors, put together from the pieces of all ranks."""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import RecordedStep, RecordHeader, rank_files
from tests.sharing import made_once

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
Rank = tuple[RecordHeader, list[RecordedStep]]
Sums = dict[tuple[str, str], tuple[np.ndarray, float, int]]


def read(directory: Path) -> list[Rank]:
    ranks = []
    for path in rank_files(directory):
        with path.open("rb") as file:
            header, steps = read_rank(file, path.name)
            ranks.append((header, [*steps]))
    return ranks


def joined(ranks: list[Rank], place: int) -> Sums:
    """Phase and name -> projections, square and bits; a piece that several ranks hold counts once."""
    found: Sums = {}
    seen = set()
    for header, steps in ranks:
        for phase, rows in (steps[place].stats or {}).items():
            if phase == "local":  # of each rank
                continue
            for tensor, row in zip(header.tensors, rows, strict=True):
                if (phase, tensor.name, tensor.piece) not in seen:
                    seen.add((phase, tensor.name, tensor.piece))
                    before, square, bits = found.get((phase, tensor.name), (np.zeros(8), 0.0, 0))
                    total = before + row["projections"].astype(float), square + float(row["square"])
                    found[phase, tensor.name] = (*total, (bits + int(row["bits"])) % 2**32)
    return found


def distance(one: list[Rank], other: list[Rank]) -> float:
    """The largest difference of projections at any step, as a part of the tensor's norm."""
    worst = 0.0
    assert len(one[0][1]) == len(other[0][1])
    for place in range(len(one[0][1])):
        a, b = joined(one, place), joined(other, place)
        assert a.keys() == b.keys()
        for key in a:
            if np.isnan(a[key][1]) and np.isnan(b[key][1]):
                continue
            worst = max(worst, float(np.abs(a[key][0] - b[key][0]).max() / max(a[key][1], 1e-30) ** 0.5))
    return worst


def examples(ranks: list[Rank], place: int) -> Counter[int]:
    return Counter(row for _, steps in ranks for row in steps[place].rows or ())


def loss(ranks: list[Rank], place: int) -> float:
    return float(np.mean([sum(steps[place].losses) for _, steps in ranks]))


def record(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs `samestep record`."""
    line = [sys.executable, "-m", "samestep", "record", *words]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)


Case = tuple[str, Sequence[str], dict[str, object] | None, int]
"""A script, its arguments, how it is recorded if it is, and the number of its processes."""
_CONNECTED: dict[str, "Connection"] = {}
"""Framework -> what this process has asked before."""
_STARTED: list[subprocess.Popen[bytes]] = []
"""What this process has started, which may still run when it ends."""


@atexit.register
def _leave() -> None:
    """Lets go of what this process has asked and started; others may still ask it, so nobody waits for it to end."""
    for connection in _CONNECTED.values():
        connection.close()
    for process in _STARTED:
        process.returncode = process.poll() or 0  # else Python warns that it still runs


class Connection:
    """To a process that has a framework, of which a test session has one: the first of its workers to ask starts it."""

    def __init__(self, framework: str) -> None:
        name = f"\0samestep {os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())} {framework}"
        for _ in range(3):  # one that nobody needed any more may just have ended
            _start(framework, name)
            self._socket = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(ConnectionError):
                self._socket.connect(name)
                self._stream = self._socket.makefile("rw")
                if answered_by := self._stream.readline():
                    self._group = int(answered_by)
                    return
            self._socket.close()
            time.sleep(0.1)
        raise RuntimeError(f"no process has {framework}")

    def ask(self, cases: Sequence[Case]) -> dict[str, str]:
        """Has scripts run, one after the other."""
        try:
            print(json.dumps(cases), file=self._stream, flush=True)
            assert select.select([self._socket], [], [], 500)[0], "the scripts do not end"
            return json.loads(self._stream.readline())
        except BaseException:
            with contextlib.suppress(ProcessLookupError):  # it would answer later
                os.killpg(self._group, signal.SIGKILL)
            self.close()
            raise

    def close(self) -> None:
        """Lets what answers it end."""
        self._stream.close()
        self._socket.close()


def _start(framework: str, name: str) -> None:
    """Starts the process that listens to a name, unless one does."""
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(name)
        except OSError:
            return
        listening.listen()
        line = [sys.executable, "-m", "tests.recording.run_many", framework, str(os.getpid())]
        _STARTED.append(subprocess.Popen(line, cwd=ROOT, stdin=listening, process_group=0))


def run_forked(framework: str, cases: Sequence[Case]) -> str:
    """What scripts print, one after the other, each in processes that are forked off one that has their framework."""
    connection = _CONNECTED.pop(framework, None) or Connection(framework)
    said = connection.ask(cases)
    _CONNECTED[framework] = connection
    assert not said["failed"], f"{said['failed']} failed: {said['err']}"
    is_recorded = any(options is not None for _, _, options, _ in cases)  # else a script may say which reruns it makes
    assert not is_recorded or "samestep:" not in said["err"], said["err"]
    return said["out"]


def run_many(folder: Path, cases: dict[str, tuple[str, dict[str, object]]]) -> dict[str, list[Rank]]:
    """Records scripts in processes that are forked off one that has torch.

    Args:
        folder: Gets a record for each.
        cases: Name -> the script with its arguments, and options; "world" is the number of processes.
    """
    orders = []
    for name, (line, options) in cases.items():
        (folder / name).mkdir(parents=True)
        script, *arguments = line.split()
        own = {"out": str(folder / name), "command": [script, *arguments]} | options
        orders.append((str(SCRIPTS / script), arguments, own, own.pop("world", 1)))
    run_forked("torch", orders)
    return {name: read(folder / name) for name in cases}


def recorded_once(factory: pytest.TempPathFactory, name: str, cases: dict[str, tuple[str, dict[str, object]]]) -> Path:
    """The folder of a session's records."""

    def make(folder: Path) -> None:
        run_many(folder, cases)

    return made_once(factory, name, make)


def read_many(folder: Path) -> dict[str, list[Rank]]:
    """Reads every record in a folder."""
    return {each.name: read(each) for each in folder.iterdir()}
