import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from common.config import RunConfig
from common.ledger import Footprint
from common.runtime.check import check
from common.runtime.launcher import Launcher
from common.runtime.records import DeviceRow, RunResult
from experiments.arguments import parse_cell

RunTroubled = Callable[..., RunResult]


def memory(rows: Sequence[Footprint | DeviceRow]) -> list[tuple[int, ...]]:
    """What of a ledger's rows has to be equal to the byte, in any order."""
    return sorted((r.params_bytes, r.params_peak_bytes, r.gradients_bytes, r.optimizer_bytes) for r in rows)


def left_running(launcher: Launcher) -> list[int]:
    """The processes of a launcher's runs that are still there."""
    pids = [pid for server in launcher._servers.values() for pid in server.pids.values()]
    return [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]


@pytest.fixture(scope="session")
def troubled() -> Iterator[Launcher]:
    """A launcher whose workers can be made to misbehave."""
    with Launcher(worker="tests.tf_impl.trouble") as launcher:
        yield launcher


@pytest.fixture
def run_troubled(troubled: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunTroubled]:
    """Runs a cell to which something happens; keyword arguments are RunConfig's fields. No process may be left."""

    def run(trouble: str, cell: str, workload: str, **fields: object) -> RunResult:
        framework, info, options = parse_cell(cell)
        asked = RunConfig(framework=framework, strategy=info.name, options=options, workload=workload)
        defaults = {
            "out": str(tmp_path_factory.mktemp("run") / "run"),
            "timeout_seconds": 30.0,
            "batch_size": 48,
            "steps": 20,
        }
        config, resolved = check(dataclasses.replace(asked, **{**defaults, **fields}))
        return troubled.run(config, resolved, environment={"TROUBLE": trouble})

    yield run
    assert not left_running(troubled)
