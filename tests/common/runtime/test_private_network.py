"""A private network: its processes reach each other and nobody else does; its owner's files stay the owner's."""

import errno
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.runtime.link_addresses import address
from samestep.common.runtime.parent.launcher import WORKER
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.worker.links import PROGRAMS
from samestep.common.runtime.worker.private_network import Network, NetworkMaker, enter_network
from tests.children import become_nobody, in_child
from tests.seccomp import forbid_namespaces


def available(as_user: Callable[[], None]) -> bool:
    """Whether this machine allows a private network at all; Docker's default profile does not."""

    def makes() -> bool:
        as_user()
        try:
            NetworkMaker().make()
        except OSError:
            return False
        return True

    return bool(in_child(makes))


@pytest.fixture(params=[lambda: None, become_nobody], ids=["ourselves", "nobody"])
def as_user(request: pytest.FixtureRequest) -> Callable[[], None]:
    if not available(request.param):
        pytest.skip("this machine forbids network namespaces")
    return request.param


def can_connect(port: int) -> bool:
    with socket.socket() as connecting:
        found = connecting.connect_ex(("127.0.0.1", port))
    assert found in (0, errno.ECONNREFUSED)
    return found == 0


def test_peers_connect_and_nobody_else_does(as_user: Callable[[], None]) -> None:
    def meet() -> list[bool]:
        as_user()
        maker = NetworkMaker()
        network, other = maker.make(), maker.make()
        listening, told = os.pipe(), os.pipe()
        if (server := os.fork()) == 0:
            enter_network(network.entry(0))
            inside = socket.create_server(("", 0))  # on every address, as TensorFlow does
            os.close(told[1])
            os.write(listening[1], str(inside.getsockname()[1]).encode())
            os.read(told[0], 1)
            os._exit(0)
        port = int(os.read(listening[0], 16))

        def from_within(entered: Network) -> bool:
            enter_network(entered.entry(0))
            return can_connect(port)

        found = [in_child(lambda: from_within(network)), in_child(lambda: from_within(other)), can_connect(port)]
        os.write(told[1], b".")
        os.waitpid(server, 0)
        return found

    assert in_child(meet) == [True, False, False]


def test_it_has_nothing_but_a_loopback_and_grants_nothing(as_user: Callable[[], None], tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents[:3]:
        if folder.owner() == tmp_path.owner():
            folder.chmod(folder.stat().st_mode | 0o011)

    def look() -> list[object]:
        as_user()
        before = capabilities()
        path = tmp_path / "mine"
        enter_network(NetworkMaker().make().entry(0))
        path.touch()
        return [
            [name for _, name in socket.if_nameindex()],
            path.stat().st_uid == os.geteuid(),
            capabilities() == before,
        ]

    assert in_child(look) == [["lo"], True, True]


def capabilities() -> str:
    return next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))


def test_where_it_is_forbidden_the_fork_server_says_why(tmp_path: Path) -> None:
    def ask() -> str:
        forbid_namespaces()
        server = ForkClient("numpy", 1, WORKER, str(tmp_path))
        try:
            return server.make_network()
        finally:
            server.close()

    assert in_child(ask) == "Operation not permitted"


def test_each_process_has_a_link_that_carries_so_much(as_user: Callable[[], None]) -> None:
    """What takes 0.27 s on the link takes no less, and goes through."""
    mbit, sent = 8, 300_000

    def send() -> float:
        as_user()
        network = NetworkMaker().make(2, mbit * 10**6)
        ready, told = os.pipe()
        if (server := os.fork()) == 0:
            enter_network(network.entry(1))
            listening = socket.create_server((address(1), 7000))
            listening.settimeout(20)
            os.write(told, b".")
            with listening.accept()[0] as accepted:
                while accepted.recv(2**16):
                    pass
                os._exit(0)

        def transmit() -> float:
            enter_network(network.entry(0))
            with socket.socket() as connection:  # as nobody, Python cannot import what it needs to look names up
                connection.connect((address(1), 7000))
                start = time.perf_counter()
                connection.sendall(bytes(sent))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)  # until the other has everything, and closes
                return time.perf_counter() - start

        os.read(ready, 1)
        seconds = in_child(transmit)
        os.waitpid(server, 0)
        return float(str(seconds))

    if shutil.which("ip", path=PROGRAMS) is None or shutil.which("tc", path=PROGRAMS) is None:
        pytest.skip("this machine has no ip and tc (package iproute2)")
    seconds = float(str(in_child(send)))
    ideal = (sent - 2**15) * 8 / (mbit * 10**6)  # the bucket is full at first
    assert ideal < seconds
