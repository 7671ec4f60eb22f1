"""parameter_server in trouble: who dies, hangs or never comes is named, or done without; every update is accounted for."""

import pathlib
import re
import socket
import time

import numpy as np
import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.parent.processes import network
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import read_state
from samestep.common.workload.initial import init
from samestep.common.workload.table import resolve
from samestep.experiments.printing import tables
from tests.cells import SHALLOW, slow
from tests.tf_impl.conftest import RunTroubled

pytestmark = pytest.mark.tf
SERIAL, ASYNC = "tf:parameter_server", "tf:parameter_server+consistency=async"
NAMED_WITHIN_SECONDS = 30


def changes(result: RunResult, run: pathlib.Path) -> np.ndarray:
    """By how much each weight has changed."""
    initial, final = init(resolve(result.workload).model, result.seed), read_state(run).params
    return np.concatenate([(final[name] - initial[name]).ravel() for name in initial])


# --- asynchronous -----------------------------------------------------------------------------------------------------


def test_every_update_is_applied_once(run_troubled: RunTroubled, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "run"
    fields = {"devices": 3, "steps": 60, "dtype": "float64", "optimizer": "sgd", "out": str(out), "keep_state": True}
    result = run_troubled("updates_count_themselves", ASYNC, SHALLOW, **fields)
    measured = result.processes[0].measures
    assert (measured["updates_applied"], measured["updates_repeated"]) == (180, 0)
    assert 0 < measured["staleness"] < 8
    assert np.abs(changes(result, out) - 180).max() < 1e-9


def test_the_run_goes_on_without_a_dead_worker_and_says_what_was_repeated(
    run_troubled: RunTroubled, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    fields = {"devices": 2, "steps": 20, "dtype": "float64", "optimizer": "sgd", "out": str(out), "keep_state": True}
    result = run_troubled("worker_dies_in_an_update", ASYNC, SHALLOW, **fields)
    assert "worker-0 was killed by SIGKILL; the run goes on without it" in capfd.readouterr().err
    assert len(result.losses) == 20
    applied, repeated = (result.processes[0].measures[f"updates_{what}"] for what in ("applied", "repeated"))
    assert applied == 40
    assert repeated == 1, "the dead worker had one in hand"
    assert ("updates repeated", "1 updates") in [(name, said) for name, said, _ in tables.measures(result)]
    counted = changes(result, out)
    assert counted.min() > applied - 1e-9
    assert counted.max() < applied + repeated + 1e-9


def test_a_run_without_workers_ends(run_troubled: RunTroubled, tmp_path: pathlib.Path) -> None:
    with pytest.raises(WorkerFailed, match=r"worker-[01] was killed by SIGKILL"):
        run_troubled("both_workers_die", ASYNC, SHALLOW, devices=2, steps=5000, out=str(tmp_path / "run"))
    assert time.time() - (tmp_path / "run/struck").stat().st_mtime < NAMED_WITHIN_SECONDS


# --- serial and asynchronous ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cell", "job"), [(SERIAL, "worker"), (SERIAL, "ps"), (ASYNC, "ps")])
def test_a_dead_process_is_named(run_troubled: RunTroubled, tmp_path: pathlib.Path, cell: str, job: str) -> None:
    with pytest.raises(WorkerFailed, match=f"{job}-0 was killed by SIGKILL"):
        run_troubled(f"{job}_dies", cell, SHALLOW, devices=2, steps=5000, out=str(tmp_path / "run"))
    assert time.time() - (tmp_path / "run/struck").stat().st_mtime < NAMED_WITHIN_SECONDS


@pytest.mark.parametrize("cell", [SERIAL, *slow(ASYNC)])
def test_a_stopped_worker_is_named(run_troubled: RunTroubled, cell: str) -> None:
    with pytest.raises(WorkerFailed, match="worker-1 made no progress for 6 s"):
        run_troubled("worker_stops", cell, SHALLOW, devices=2, steps=5000, timeout_seconds=6)


def test_a_worker_that_never_starts_is_named(run_troubled: RunTroubled) -> None:
    start = time.monotonic()
    with pytest.raises(WorkerFailed, match="worker-1 never started within 6 s"):
        run_troubled("second_worker_never_starts", SERIAL, SHALLOW, devices=2, timeout_seconds=6)
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(("cell", "place"), [(SERIAL, 1), (ASYNC, 1), (SERIAL, 3)])
def test_a_taken_port_is_told(
    run_troubled: RunTroubled, monkeypatch: pytest.MonkeyPatch, cell: str, place: int
) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        ports = network.free_ports(4)
        ports[place] = taken.getsockname()[1]
        monkeypatch.setattr(network, "free_ports", lambda count: ports)
        monkeypatch.setattr(ForkClient, "make_network", lambda self: "forbidden")  # where every port is free
        role = ("chief-0", "worker-0", "worker-1", "ps-0")[place]
        with pytest.raises(
            WorkerFailed, match=re.compile(f"{role} ended with exit code 1.*Could not start gRPC server")
        ):
            run_troubled("", cell, SHALLOW, devices=2, timeout_seconds=8)
