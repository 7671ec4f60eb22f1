import os
import socket
import threading

import pytest

from samestep.common.runtime.worker.usage import tcp_bytes


@pytest.fixture
def pair():
    """Both ends of a TCP connection over the loopback; both are this process's own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            yield near, far


def carry(near: socket.socket, far: socket.socket, count: int) -> None:
    sender = threading.Thread(target=near.sendall, args=(os.urandom(count),))
    sender.start()
    received = 0
    while received < count:
        received += len(far.recv(1 << 16))
    sender.join()


@pytest.mark.parametrize("count", [1, 1000, 3_000_000])
def test_the_kernel_counts_every_byte_once_at_each_end(pair, count):
    sent, received, *away = tcp_bytes()
    carry(*pair, count)
    sent_now, received_now, *away_now = tcp_bytes()
    assert (sent_now - sent, received_now - received) == (count, count)
    assert away_now == away, "both ends are on this host"


def test_both_directions_count(pair):
    near, far = pair
    sent, received, *_ = tcp_bytes()
    carry(near, far, 500)
    carry(far, near, 70)
    sent_now, received_now, *_ = tcp_bytes()
    assert (sent_now - sent, received_now - received) == (570, 570)


def test_what_is_not_tcp_does_not_count():
    before = tcp_bytes()
    one, other = socket.socketpair()
    with one, other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.socket() as unconnected:
        one.sendall(bytes(100))
        assert other.recv(200) == bytes(100)
        datagrams.sendto(bytes(100), ("127.0.0.1", 9))
        assert unconnected.fileno() > 0
        assert tcp_bytes() == before


def test_asking_closes_no_connection(pair):
    near, far = pair
    open_before = set(os.listdir("/proc/self/fd"))
    tcp_bytes()
    assert set(os.listdir("/proc/self/fd")) == open_before
    carry(near, far, 10)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("torch:ddp", marks=pytest.mark.torch),
        pytest.param("torch:fsdp", marks=pytest.mark.torch),
        pytest.param("tf:multi_worker_mirrored", marks=pytest.mark.tf),
    ],
)
def test_one_device_sends_nothing_in_a_step(run_cell, cell):
    """What a process sends itself to meet itself is no part of a step."""
    result = run_cell(cell, "digits-mlp+width=32", devices=1, parity=False, steps=5)
    assert [row.sent_bytes_per_step for row in result.processes] == [0.0]
