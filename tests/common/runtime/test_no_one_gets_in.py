"""While a run trains, nobody outside reaches its ports. Where that cannot be had, torch stays on the loopback and
TensorFlow's open ports are named. What is written and sent is its user's alone, and nothing in it is unpickled."""

import contextlib
import dataclasses
import io
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samestep.common.files.reading import Unreadable
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import open_run
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.state_file import from_bytes
from samestep.common.runtime.topology import bypass_proxies
from samestep.common.workload.data.dataset import cache_directory, make_cache_directory
from tests.cells import SIZED
from tests.conftest import RunCell

TORCH = [pytest.param("torch", name, marks=pytest.mark.torch) for name in ("ddp", "rpc")]
TF = [pytest.param("tf", name, marks=pytest.mark.tf) for name in ("multi_worker_mirrored", "parameter_server")]
LISTENS = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1, as /proc/net/tcp and tcp6 write them."""


class SeenEnough(Exception):
    """Ends a run."""


def listening(pid: int) -> set[tuple[str, int]]:
    """The addresses and ports that a process listens on, in its own network."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            own.add(os.readlink(descriptor))
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    found = [line[1].split(":") for line in lines if line[3] == LISTENS and f"socket:[{line[9]}]" in own]
    return {(address, int(port, 16)) for address, port in found}


def can_connect(port: int) -> bool:
    for host in ("127.0.0.1", "127.0.0.2"):
        with socket.socket() as connecting:
            if connecting.connect_ex((host, port)) == 0:
                return True
    return False


@pytest.fixture
def while_it_trains(launcher: Launcher, tmp_path: Path) -> Callable[..., None]:
    """Starts a run, calls a function with the processes of the run after some steps, and ends it."""

    def start(framework: str, strategy: str, does: Callable[[list[int]], None]) -> None:
        asked = RunConfig(framework, strategy, SIZED["mlp"], devices=2, batch_size=48, steps=1000, parity=False)
        asked = dataclasses.replace(asked, out=str(tmp_path / "run"), timeout_seconds=30.0)
        launcher.warm([framework])
        server = launcher._servers[framework, 1, ""]
        before = set(server.pids)

        def look(step: int, losses: list[float], seconds: float) -> None:
            does([pid for number, pid in server.pids.items() if number not in before])
            raise SeenEnough

        with pytest.raises(SeenEnough):
            launcher.run(parse(asked), launch_of(asked), look)

    return start


@pytest.mark.parametrize(("framework", "strategy"), [*TORCH, *TF])
def test_nobody_outside_reaches_a_run(
    launcher: Launcher, while_it_trains: Callable[..., None], tmp_path: Path, framework: str, strategy: str
) -> None:
    launcher.warm([framework])
    if reason := launcher._servers[framework, 1, ""].make_network():
        pytest.skip(f"this machine forbids network namespaces: {reason}")
    ports: set[int] = set()
    reached: set[int] = set()

    def attack(pids: list[int]) -> None:
        ports.update(port for pid in pids for _, port in listening(pid))
        reached.update(port for port in ports if can_connect(port))

    while_it_trains(framework, strategy, attack)
    assert ports
    assert reached == set()
    logs = [log.read_text() for log in (tmp_path / "run").glob("*.log")]
    assert not any("hostname" in log for log in logs), "torch warns where there is no name server"


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """No private networks, as in most containers; `test_private_network.py` has the real refusal."""
    monkeypatch.setattr(ForkClient, "make_network", lambda self: "Operation not permitted")


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize(("framework", "strategy"), TORCH)
def test_without_a_private_network_torch_listens_on_the_loopback(
    while_it_trains: Callable[..., None], capfd: pytest.CaptureFixture[str], framework: str, strategy: str
) -> None:
    found: set[tuple[str, int]] = set()
    while_it_trains(framework, strategy, lambda pids: found.update(*map(listening, pids)))
    assert found
    assert {address for address, _ in found} <= LOOPBACK
    told = [line for line in capfd.readouterr().err.splitlines() if "no private network" in line]
    assert [line for line in told if "every user of this machine" in line and "run code as you" in line] == told
    assert len(told) == (strategy == "rpc")


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize(("framework", "strategy"), TF[:1])
def test_without_a_private_network_open_ports_are_named(
    while_it_trains: Callable[..., None], capfd: pytest.CaptureFixture[str], framework: str, strategy: str
) -> None:
    found: set[tuple[str, int]] = set()
    while_it_trains(framework, strategy, lambda pids: found.update(*map(listening, pids)))
    ports = {port for address, port in found if address not in LOOPBACK}
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "no private network" in line]
    told = re.search(
        r"\(Operation not permitted\).* can connect to TCP ports ([\d, ]+) and run TensorFlow graphs", line
    )
    assert told and set(map(int, told[1].split(", "))) == ports


@pytest.mark.torch
@pytest.mark.usefixtures("forbidden")
def test_without_a_private_network_the_step_is_the_same(run_cell: RunCell) -> None:
    assert run_cell("torch:ddp", SIZED["mlp"], devices=2, dtype="float64").parity.passed


@pytest.mark.tf
def test_a_proxy_is_not_asked(run_cell: RunCell) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:9"}
    assert run_cell("tf:multi_worker_mirrored", SIZED["mlp"], proxy, devices=2, dtype="float64").parity.passed


def test_other_hosts_keep_what_was_said_of_them() -> None:
    found = bypass_proxies(["127.0.0.1", "127.0.0.1"], {"no_proxy": "example.org"})
    assert found == {"no_proxy": "example.org,127.0.0.1", "NO_PROXY": "127.0.0.1"}


# --- files, and what is sent ------------------------------------------------------------------------------------------


def test_a_new_run_and_the_cache_are_their_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = os.umask(0)
    try:
        (tmp_path / "shared").mkdir(mode=0o750)
        open_run(tmp_path / "shared", RunConfig())
        open_run(tmp_path / "new", RunConfig())
        make_cache_directory()
    finally:
        os.umask(old)
    folders = (tmp_path / "new", cache_directory(), tmp_path / "shared")
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o700", "0o700", "0o750"]


def test_a_state_that_is_sent_is_not_unpickled() -> None:
    file = io.BytesIO()
    np.savez(file, step=np.int64(1), **{"params/kernel": np.array([{}], dtype=object)})
    with pytest.raises(Unreadable, match="params/kernel holds objects, not numbers"):
        from_bytes(file.getvalue())
