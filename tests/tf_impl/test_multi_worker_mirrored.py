"""multi_worker_mirrored: one process per device, and what becomes of it when one of them fails."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.parent.processes import network
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.runtime.topology import fill_in, own_index, workers
from samestep.experiments.printing.trace_file import load_trace
from tests.cells import SHALLOW, slow
from tests.conftest import RunCell
from tests.tf_impl.conftest import RunTroubled, memory

pytestmark = pytest.mark.tf
CELL = "tf:multi_worker_mirrored"


def costs_what_was_predicted(result: RunResult) -> None:
    assert memory(result.processes) == memory(result.predicted.devices())
    assert tuple(result.exchanges) == result.predicted.exchanges
    predicted = result.predicted.sent_bytes_per_step
    sent = sum(row.sent_bytes_per_step for row in result.processes)
    assert abs(sent - predicted) <= 0.01 * predicted


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ledger(run_cell: RunCell, devices: int) -> None:
    result = run_cell(CELL, "digits-mlp+width=256", devices=devices, dtype="float64", optimizer="adamw")
    assert result.parity.passed, result.parity.reason
    assert [row.role for row in result.processes] == [f"worker-{i}" for i in range(devices)]
    costs_what_was_predicted(result)


@pytest.mark.parametrize("cell", [CELL, *slow("tf:mirrored")])
def test_with_overlap_the_last_gradient_goes_first(run_cell: RunCell, cell: str) -> None:
    """The backward pass yields it first, and collectives go one after the other: in the other order all would wait."""
    result = run_cell(f"{cell}+overlap=true", SHALLOW, devices=2, dtype="float64", steps=3)
    assert result.parity.passed, result.parity.reason
    first, *_, last = [send.bytes for send in result.processes[0].sends]
    assert (first, last) == (10 * 8, 64 * 32 * 8), "the last bias, and the first kernel"
    assert [send.bytes for send in result.processes[0].sends] == [send.bytes for send in result.predicted.sends]


@pytest.mark.slow
def test_more_of_the_exchange_overlaps_with_overlap(run_cell: RunCell, tmp_path: pathlib.Path) -> None:
    shares = []
    for overlap in ("false", "true"):
        out = tmp_path / overlap
        fields = {"devices": 2, "parity": False, "trace": True, "out": str(out), "steps": 4}
        run_cell(f"{CELL}+overlap={overlap}", "prose-gpt+layers=3", **fields)
        trace = load_trace(out)
        assert trace is not None
        flight, hidden = trace.overlap()
        shares.append(hidden / flight)
    assert shares[0] < 0.02 < shares[1]


def test_workers_started_by_hand_need_only_tf_config(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "run"
    asked = RunConfig("tf", "multi_worker_mirrored", SHALLOW, devices=2, batch_size=48, steps=5, out=str(out))
    run = parse(asked)
    prepare(run, launch_of(asked))
    addresses = [("127.0.0.1", port) for port in network.free_ports(2)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "samestep", "worker", str(out)],
            env=os.environ | fill_in(spec, addresses),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for spec in workers(run)
    ]
    try:
        assert [process.wait(60) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
    assert load_result(out).parity.passed


def test_a_killed_worker_is_named(run_troubled: RunTroubled) -> None:
    with pytest.raises(WorkerFailed, match="worker-1 was killed by SIGKILL"):
        run_troubled("second_worker_is_killed", CELL, SHALLOW, devices=2, steps=2000)


@pytest.mark.parametrize(
    ("which", "role"), [pytest.param("first", "worker-0", marks=pytest.mark.slow), ("second", "worker-1")]
)
def test_a_stopped_worker_is_named(run_troubled: RunTroubled, which: str, role: str) -> None:
    with pytest.raises(WorkerFailed, match=f"{role} made no progress for 6 s; it is stopped"):
        run_troubled(f"{which}_worker_is_stopped", CELL, SHALLOW, devices=2, steps=2000, timeout_seconds=6)


def test_a_peer_that_never_starts_ends_the_run(run_troubled: RunTroubled) -> None:
    start = time.monotonic()
    with pytest.raises(WorkerFailed, match="worker-1 never started"):
        run_troubled("second_worker_never_starts", CELL, SHALLOW, devices=2, timeout_seconds=4)
    assert time.monotonic() - start < 60


def test_a_taken_port_is_told(run_troubled: RunTroubled, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        ports = [taken.getsockname()[1], *network.free_ports(1)]
        monkeypatch.setattr(network, "free_ports", lambda count: ports)
        monkeypatch.setattr(ForkClient, "make_network", lambda self: "forbidden")  # where every port is free
        with pytest.raises(WorkerFailed, match=r"worker-0.*Could not start gRPC server"):
            run_troubled("", CELL, SHALLOW, devices=2, timeout_seconds=8)


def test_tf_config_is_all_that_tells_a_process_who_it_is() -> None:
    specs = workers(parse(RunConfig("tf", "multi_worker_mirrored", mesh="data=3", batch_size=48)))
    environment = fill_in(specs[2], [("a", 1), ("b", 2), ("c", 3)])
    assert json.loads(environment["TF_CONFIG"])["cluster"] == {"worker": ["a:1", "b:2", "c:3"]}
    assert own_index(specs, environment) == 2
