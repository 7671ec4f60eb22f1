"""Network namespaces as hosts: each has an address and a name of its own, and no loopback in common."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.commands import ROOT, kill
from tests.engines.keeper import own_name

needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and iproute2"
)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def switched(number: int) -> Iterator[list[str]]:
    """Namespaces on one switch, with the addresses 10.78.0.1 and so on; the devices end with them."""
    names = [f"{own_name()}-{n}" for n in range(number + 1)]
    with contextlib.ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
        switch, *hosts = names
        names_of = _names(switch)
        _ip("-n", switch, "link", "add", "name", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for n, host in enumerate(hosts):
            _ip("-n", switch, "link", "add", "name", f"port{n}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", switch, "link", "set", f"port{n}", "master", "switch", "up")
            _ip("-n", host, "address", "add", f"10.78.0.{n + 1}/16", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
        names_of.write_text("".join(f"10.78.0.{n + 1} host{n}\n" for n in range(number)))
        stack.callback(names_of.unlink)
        yield hosts


def limit(host: str, bits_per_second: int) -> None:
    """Limits what a host sends."""
    shape = ["tbf", "rate", f"{bits_per_second}bit", "burst", "128kb", "limit", "64mb"]
    subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", "eth0", "root", *shape], check=True)


def _names(host: str) -> Path:
    """The file with the names of hosts that are on one switch."""
    return Path(tempfile.gettempdir(), f"{host.rpartition('-')[0]}-hosts")


def on(host: str, number: int) -> list[str]:
    """The words before a command that has it run on a host, by its number, where all have names."""
    script = f'hostname host{number}; mount --bind {_names(host)} /etc/hosts; exec "$@"'
    return ["ip", "netns", "exec", host, "unshare", "--uts", "bash", "-c", script, "bash"]


def lose(host: str) -> None:
    """Kills all that runs on a host."""
    listed = subprocess.run(["ip", "netns", "pids", host], check=True, capture_output=True, text=True).stdout
    for process in listed.split():
        kill(int(process))


def started(hosts: list[str], directory: Path, processes: int, per_host: int) -> list[subprocess.Popen[str]]:
    """The processes of a run, so many on each host, who are told nothing but their number."""
    begun = []
    for rank in range(processes):
        line = [*on(hosts[rank // per_host], rank // per_host), sys.executable, "-m", "samestep", "worker"]
        own = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        begun.append(subprocess.Popen([*line, str(directory)], cwd=ROOT, env=own, text=True, **pipes))
    return begun
