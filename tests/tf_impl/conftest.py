import dataclasses
from collections.abc import Callable, Iterable, Iterator

import pytest

from samestep.common.cell import Cell
from samestep.common.ledger import Footprint
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import DeviceRow, RunResult
from tests.lent import LentLauncher
from tests.processes import descendants

RunTroubled = Callable[..., RunResult]


def memory(devices: Iterable[Footprint | DeviceRow]) -> list[tuple[int, ...]]:
    """What of a ledger's rows has to be equal to the byte, in any order; activations that nobody counted are -1."""
    return sorted(
        (r.params_bytes, r.params_peak_bytes, r.gradients_bytes, r.optimizer_bytes, _known(r.activations_bytes))
        for r in devices
    )


def costs_what_was_predicted(result: RunResult) -> None:
    """What devices hold and exchange is predicted to the byte, but for activations, which nobody predicts of a user's model."""
    predicted = [dataclasses.replace(each, activations_bytes=None) for each in result.predicted.devices()]
    measured = [dataclasses.replace(each, activations_bytes=None) for each in result.processes]
    assert memory(measured) == memory(predicted)
    assert tuple(result.exchanges) == result.predicted.exchanges
    sent = sum(row.sent_bytes_per_step for row in result.processes)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.05, abs=512)


def _known(count: int | None) -> int:
    return -1 if count is None else count


def left_running(launcher: Launcher) -> list[int]:
    """The processes of a launcher's runs that are still there; a number that another process has by now is none of them."""
    servers = launcher._servers.values()
    return [pid for server in servers for pid in descendants(server._process.pid).intersection(server.pids.values())]


@pytest.fixture(scope="session")
def troubled(launcher: Launcher) -> Launcher:
    """A launcher whose workers can be made to misbehave."""
    return LentLauncher(launcher, "tests.tf_impl.trouble")


@pytest.fixture
def run_troubled(troubled: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunTroubled]:
    """Runs a cell to which something happens; keyword arguments are RunConfig's fields. No process may be left."""

    def run(trouble: str, cell: str, workload: str, **fields: object) -> RunResult:
        defaults = {
            "out": str(tmp_path_factory.mktemp("run") / "run"),
            "timeout_seconds": 30.0,
            "batch_size": 48,
            "steps": 20,
        }
        asked = Cell.parse(cell).apply_to(RunConfig(workload=workload, **{**defaults, **fields}))
        return troubled.run(parse(asked), launch_of(asked), environment={"TROUBLE": trouble})

    yield run
    assert not left_running(troubled)
