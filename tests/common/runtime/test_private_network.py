"""A private network: its processes reach each other and nobody else does; its owner's files stay the owner's."""

import errno
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from samestep.common.runtime.parent.fork_client import ForkClient
from samestep.common.runtime.parent.launcher import WORKER
from samestep.common.runtime.worker.private_network import NetworkMaker, enter_network
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
            enter_network(network)
            inside = socket.create_server(("", 0))  # on every address, as TensorFlow does
            os.close(told[1])
            os.write(listening[1], str(inside.getsockname()[1]).encode())
            os.read(told[0], 1)
            os._exit(0)
        port = int(os.read(listening[0], 16))

        def from_within(entered: Sequence[int]) -> bool:
            enter_network(entered)
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
        enter_network(NetworkMaker().make())
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
