"""Runs over several hosts: network namespaces, each with an address and a name of its own, and no loopback in common."""

from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments.page.loading import load
from samestep.experiments.page.page import page
from samestep.experiments.printing.tables import report
from tests.conftest import RunCell
from tests.engines.host_box import needs_root, started

WORKLOAD = "digits-mlp+width=32"
HANDED_OUT = "tf:parameter_server"
"""Its chief hands each update to whichever worker is free, so workers need not have the same share of them."""


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
        pytest.param("torch:zero1", 4, 2, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:hybrid", 2, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:hybrid", 4, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:hybrid+mesh=pipe=2,data=2", 4, 2, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc", 2, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc", 4, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc+accumulation_steps=2", 4, 2, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc_parameter_server", 1, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:rpc_parameter_server", 3, 1, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("tf:multi_worker_mirrored", 2, 1, marks=[pytest.mark.tf, pytest.mark.slow]),
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
    """One row of torch; `make test-slow` takes the others, and those of TensorFlow, whose processes start slowly."""
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
        hold_whoever_was_free(result)
        return
    for each in result.by_host:
        assert each.within_bytes == pytest.approx(each.predicted_within_bytes, rel=0.01)
        assert each.sent_bytes == pytest.approx(each.predicted_sent_bytes, rel=0.01)
        assert each.received_bytes == pytest.approx(each.predicted_received_bytes, rel=0.01)


def hold_whoever_was_free(result: RunResult) -> None:
    """Holds what does not depend on which worker took an update: the sum, and what a worker sends for what it receives."""
    held: list[tuple[float, float]] = []
    if len(result.by_host) == len(result.processes):  # else who shares a host decides what leaves it
        held.append((sum(each.sent_bytes for each in result.by_host), result.predicted.sent_bytes_per_step))
    for host, each in zip(result.hosts, result.by_host, strict=True):
        if all(role.startswith("worker-") for role in host["processes"].split()):
            held.append(
                (each.sent_bytes / each.received_bytes, each.predicted_sent_bytes / each.predicted_received_bytes)
            )
    assert len(held) in (0, 3)
    for measured, predicted in held:
        assert measured == pytest.approx(predicted, rel=0.01)
