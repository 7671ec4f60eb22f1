"""Runs over several hosts: network namespaces, each with an address and a name of its own, and no loopback in common."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.records import load_result
from samestep.common.steps.log import METRICS
from samestep.experiments.page.loading import load
from samestep.experiments.page.page import page
from samestep.experiments.printing.tables import report
from tests.conftest import RunCell

ROOT = Path(__file__).parents[2]
WORKLOAD = "digits-mlp+width=32"
HOSTS = 4
HANDED_OUT = "tf:parameter_server"
"""Its chief hands each update to whichever worker is free, so workers need not have the same share of them."""
needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and iproute2"
)


@pytest.fixture(scope="session")
def hosts() -> Iterator[list[str]]:
    """Namespaces on one switch, with the addresses 10.78.0.1 and so on; the devices end with them."""
    names = [f"samestep-{os.getpid()}-{n}" for n in range(HOSTS + 1)]
    ip = lambda *words: subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: E731
    with contextlib.ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        switch, *hosts = names
        ip("-n", switch, "link", "add", "name", "switch", "type", "bridge")
        ip("-n", switch, "link", "set", "switch", "up")
        for n, host in enumerate(hosts):
            ip("-n", switch, "link", "add", "name", f"port{n}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("-n", switch, "link", "set", f"port{n}", "master", "switch", "up")
            ip("-n", host, "address", "add", f"10.78.0.{n + 1}/16", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield hosts


def started(hosts: list[str], directory: Path, processes: int, per_host: int) -> list[subprocess.Popen[str]]:
    """The processes of a run, so many on each host, who are told nothing but their number."""
    begun = []
    for rank in range(processes):
        worker = f"hostname host{rank // per_host}; exec {sys.executable} -m samestep worker {directory}"
        line = ["ip", "netns", "exec", hosts[rank // per_host], "unshare", "--uts", "bash", "-c", worker]
        own = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
        begun.append(
            subprocess.Popen(line, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    return begun


def prepared(cell: str, out: Path, **fields: object) -> tuple[Path, int]:
    asked = {"dtype": "float64", "batch_size": 192, "steps": 8, "timeout_seconds": 90.0, **fields}
    config = Cell.parse(cell).apply_to(RunConfig(workload=WORKLOAD, out=str(out), **asked))
    run = parse(config)
    return prepare(run, launch_of(config)), len(run.strategy.topology(run))


@needs_root
@pytest.mark.parametrize(
    ("cell", "devices", "per_host"),
    [
        pytest.param("torch:ddp", 4, 2, marks=pytest.mark.torch),
        pytest.param("torch:ddp", 2, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:ddp", 4, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:fsdp", 2, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:fsdp", 4, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:fsdp", 4, 2, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:hybrid", 2, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:hybrid", 4, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:hybrid+mesh=pipe=2,data=2", 4, 2, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc", 2, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc", 4, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc+accumulation_steps=2", 4, 2, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc_parameter_server", 1, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc_parameter_server", 3, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("tf:multi_worker_mirrored", 2, 1, marks=pytest.mark.tf),
        pytest.param("tf:multi_worker_mirrored", 4, 1, marks=[pytest.mark.tf, pytest.mark.slow]),
        pytest.param("tf:parameter_server", 2, 1, marks=[pytest.mark.tf, pytest.mark.slow]),
        pytest.param("tf:parameter_server", 2, 2, marks=[pytest.mark.tf, pytest.mark.slow]),
        pytest.param("tf:dtensor+clients=2+mesh=data=2,tensor=2", 4, 1, marks=[pytest.mark.tf, pytest.mark.slow]),
        pytest.param("tf:dtensor+clients=4+mesh=data=2,tensor=2", 4, 1, marks=[pytest.mark.tf, pytest.mark.slow]),
    ],
)
def test_the_same_step_over_several_hosts(
    run_cell: RunCell, hosts: list[str], tmp_path: Path, cell: str, devices: int, per_host: int
) -> None:
    steps = 100 if "server" in cell else 8  # what is sent between two windows has to count for little
    directory, processes = prepared(cell, tmp_path / "run", devices=devices, steps=steps)
    begun = started(hosts, directory, processes, per_host)
    told = [process.communicate(timeout=150)[0] for process in begun]
    assert [process.returncode for process in begun] == [0] * processes, told
    result = load_result(directory)
    assert result.parity.passed, result.parity.reason
    assert [host["host"] for host in result.hosts] == [f"host{n}" for n in range(-(-processes // per_host))]
    assert not result.uncounted
    assert result.sent_bytes == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.01)
    assert len(result.by_host) == len(result.hosts)
    assert all(f"| {host['host']} " in report(result) for host in result.hosts)
    assert "Several hosts: bytes of a step" in page(load([directory]))
    if cell == HANDED_OUT:
        return
    for each in result.by_host:
        assert each.within_bytes == pytest.approx(each.predicted_within_bytes, rel=0.01)
        assert each.sent_bytes == pytest.approx(each.predicted_sent_bytes, rel=0.01)
        assert each.received_bytes == pytest.approx(each.predicted_received_bytes, rel=0.01)


@needs_root
@pytest.mark.slow
@pytest.mark.torch
def test_a_host_that_is_lost_ends_the_run(hosts: list[str], tmp_path: Path) -> None:
    directory, processes = prepared("torch:ddp", tmp_path / "run", devices=2, steps=9_000_000, timeout_seconds=10.0)
    begun = started(hosts, directory, processes, 1)
    while not (directory / METRICS).exists():
        assert begun[0].poll() is None
        time.sleep(0.1)
    begun[1].send_signal(signal.SIGKILL)
    told, _ = begun[0].communicate(timeout=60)
    assert begun[0].returncode == 1, told
    begun[1].communicate()
