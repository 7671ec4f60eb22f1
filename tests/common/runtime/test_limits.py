"""What the system lacks is named before anything starts, or at once."""

import ctypes
import dataclasses
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.errors import Unavailable
from samestep.common.ledger import Ledger
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent import check
from samestep.common.runtime.parent.check import allow_open_files
from samestep.common.runtime.parent.processes import network
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params
from tests.children import in_child

ROOT = str(Path(__file__).parents[3])
NEW_USER_AND_NETWORK = 0x50000000


def ports_where_the_loopback_is_down() -> str:
    if ctypes.CDLL(None).unshare(NEW_USER_AND_NETWORK) != 0:
        return "forbidden"
    try:
        return str(network.free_ports(2))
    except Unavailable as error:
        return str(error)


def test_a_loopback_that_is_down_is_named() -> None:
    told = in_child(ports_where_the_loopback_is_down)
    if told == "forbidden":
        pytest.skip("this system allows no network namespace in which the loopback would be down")
    assert told.startswith("processes cannot meet at 127.0.0.1 (Network is unreachable); the loopback must be up")


def test_a_loopback_with_another_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "HOST", "192.0.2.1")  # which is nobody's
    with pytest.raises(Unavailable, match=r"cannot meet at 192.0.2.1 \(Cannot assign requested address\)"):
        network.free_ports(2)


def test_a_private_network_needs_no_loopback_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Allows:
        def make_network(self) -> str:
            return ""

    monkeypatch.setattr(network, "HOST", "192.0.2.1")
    rendezvous = network.isolate(Allows(), "", 3)
    assert rendezvous.private
    assert len({port for _, port in rendezvous.addresses}) == 3


def limits(soft: int, hard: int) -> str:
    """What is said where so many open files are allowed, or the limit that is then set."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        allow_open_files(4)
    except Unavailable as error:
        return str(error)
    return str(resource.getrlimit(resource.RLIMIT_NOFILE))


@pytest.mark.parametrize(
    ("soft", "hard", "said"),
    [
        (500, 600, "(500, 600)"),
        (50, 600, "(128, 600)"),  # the shell's, which a process may raise
        (
            50,
            100,
            "4 processes may need 128 open files each, and this system allows 100; allow more with: ulimit -n 128",
        ),
    ],
)
def test_too_few_open_files_are_raised_or_named(soft: int, hard: int, said: str) -> None:
    assert in_child(lambda: limits(soft, hard)) == said


def test_a_command_names_them_before_it_starts(tmp_path: Path) -> None:
    line = f"ulimit -n 20; {sys.executable} -m samestep run single --steps 3 --out {tmp_path}/run"
    done = subprocess.run(
        line, shell=True, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == Unavailable.exit_code
    assert done.stderr.startswith("samestep: 1 process may need 80 open files each, and this system allows 20")
    assert not (tmp_path / "run").exists()


def test_costs_are_computed_only_where_the_weights_may_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    run, computed = parse(RunConfig(framework="torch", strategy="ddp", devices=2)), list[Run]()

    def cost(run: Run, backend: str) -> Ledger:
        computed.append(run)
        return run.strategy.cost(run, backend)

    watched = dataclasses.replace(run, strategy=dataclasses.replace(run.strategy, cost=lambda _, by: cost(run, by)))
    check._check_memory(watched)
    assert computed == []
    monkeypatch.setattr(check, "memory_bytes", lambda: 2 * num_params(run.workload.model) * run.item_bytes)
    check._check_memory(watched)
    assert computed == [run]
    monkeypatch.setattr(check, "memory_bytes", lambda: num_params(run.workload.model) * run.item_bytes - 1)
    with pytest.raises(Unavailable, match=r"this machine has .* GiB; choose smaller sizes, or --prepare"):
        check._check_memory(watched)
