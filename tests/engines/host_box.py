"""Network namespaces as hosts: each has an address and a name of its own, and no loopback in common."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def switched(number: int) -> Iterator[list[str]]:
    """Namespaces on one switch, with the addresses 10.78.0.1 and so on; the devices end with them."""
    names = [f"samestep-{os.getpid()}-{n}" for n in range(number + 1)]
    with contextlib.ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
        switch, *hosts = names
        _ip("-n", switch, "link", "add", "name", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for n, host in enumerate(hosts):
            _ip("-n", switch, "link", "add", "name", f"port{n}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", switch, "link", "set", f"port{n}", "master", "switch", "up")
            _ip("-n", host, "address", "add", f"10.78.0.{n + 1}/16", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
        yield hosts


def limit(host: str, bits_per_second: int) -> None:
    """Limits what a host sends."""
    shape = ["tbf", "rate", f"{bits_per_second}bit", "burst", "128kb", "limit", "64mb"]
    subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "eth0", "root", *shape], check=True)


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
