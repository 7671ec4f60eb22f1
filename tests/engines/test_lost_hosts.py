"""A host that disappears in training, under each engine: told in time, with exit code 1, and nothing of the run is left.

Hosts are network namespaces, and with Ray a second node of the cluster. All that runs on one is killed.
"""

import shlex
import subprocess
import time
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.steps.log import METRICS
from samestep.experiments.submitting.targets import read_target, write_script
from tests.engines.commands import Command, end, workers_of
from tests.engines.host_box import ROOT, lose, needs_root, on, started
from tests.engines.notices import NOTICE_SECONDS, commands_notice, told_in_time
from tests.engines.ray_box import RayBox
from tests.engines.test_jobs import endless

pytestmark = [pytest.mark.slow, pytest.mark.torch]


def prepared(directory: Path, target: str = "") -> Path:
    """An endless run for two hosts, with its script."""
    asked = {"devices": 2, "dtype": "float64", "batch_size": 192, "steps": 9_000_000, "timeout_seconds": 10.0}
    config = Cell.parse("torch:ddp").apply_to(RunConfig(workload="digits-mlp+width=32", out=str(directory), **asked))
    found = prepare(run := parse(config), launch_of(config))
    return write_script(read_target("--for", target), run, found) if target else found


def lose_one(begun: list["subprocess.Popen[str]"], host: str, directory: Path, what: str) -> str:
    """Loses the host of the second of two processes in training; returns what the first says of it."""
    try:
        while not (directory / METRICS).exists():
            assert begun[0].poll() is None, begun[0].communicate()
            time.sleep(0.1)
        lose(host)
        at = time.monotonic()
        told, _ = begun[0].communicate(timeout=60)
        seconds = time.monotonic() - at
        print(f"\n{what}, a host is lost: told {seconds:.1f} s after it")
        assert begun[0].returncode == 1, told
        assert not workers_of(directory)
        assert seconds < NOTICE_SECONDS + 5, "what gloo and the engine take beside our own time"
        return told
    finally:
        for each in begun:
            end(each)


@needs_root
def test_by_hand(hosts: list[str], tmp_path: Path) -> None:
    directory = prepared(tmp_path / "run")
    told = lose_one(started(hosts, directory, 2, 1), hosts[1], directory, "by hand")
    assert "10.78.0.2" in told, "gloo names the host by its address"


@needs_root
def test_torchrun(hosts: list[str], tmp_path: Path) -> None:
    script = prepared(tmp_path / "run", "torchrun:nodes=2")
    begun = []
    for number, host in enumerate(hosts[:2]):
        line = [*on(host, number), "env", "HEAD=10.78.0.1", "bash", str(script)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        begun.append(subprocess.Popen(line, cwd=ROOT, text=True, start_new_session=True, **pipes))
    lose_one(begun, hosts[1], tmp_path / "run", "torchrun")


@needs_root
@pytest.mark.mpi
def test_open_mpi(command: Command, hosts: list[str], tmp_path: Path) -> None:
    words = shlex.join(on(hosts[1], 1))
    (agent := tmp_path / "agent").write_text(f'#!/bin/bash\nexec {words} bash -c "${{*:2}}"\n')
    agent.chmod(0o755)
    (hostfile := tmp_path / "hosts").write_text("10.78.0.1 slots=1\n10.78.0.2 slots=1\n")
    where = f"mpi:nodes=2,hostfile={hostfile}", {"OMPI_MCA_plm_rsh_agent": str(agent)}
    process = endless(command, where, tmp_path / "run", *on(hosts[0], 0))
    notice = commands_notice(process, "mpi")
    told = told_in_time(process, tmp_path / "run", notice, lambda: lose(hosts[1]), "mpi, a host is lost")
    assert "ended without a result" in told


@pytest.mark.ray
def test_ray(command: Command, ray: RayBox, tmp_path: Path) -> None:
    ray.join()
    process = endless(command, (f"ray:nodes=2,address={ray.target}", ray.environment), tmp_path / "run")
    notice = commands_notice(process, "ray")
    told = told_in_time(process, tmp_path / "run", notice, ray.lose, "ray, a host is lost")
    assert "ended without a result" in told
