import gc
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
from collections.abc import Callable, Generator, Iterator

import pytest
from packaging.requirements import Requirement

# Decoded data and the oracle's curves are kept between test runs, apart from the user's own.
os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(__file__).parents[1] / "build" / "test-cache")

# The oracle's products are small: a second thread would only wait for the first. Before numpy is imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from samestep.common.catalog import framework_info
from samestep.common.cell import Cell
from samestep.common.errors import Unavailable
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult

# Helpers that assert show what they compared, as tests do.
pytest.register_assert_rewrite(
    "tests.ledgers", "tests.torch_impl.ledgers", "tests.engines.notices", "tests.recording.records"
)

from tests.endless import EndsEndlessTests
from tests.engines import slurm_box
from tests.one_batch_worker import FIND_PARTS, ONE_BATCH
from tests.parts import OnlyPart, Part

RunCell = Callable[..., RunResult]
_MODULES = {"torch": "torch", "tf": "tensorflow"}
_ENGINES = {
    "slurm": slurm_box.why_not,
    "ray": lambda: "" if importlib.util.find_spec("ray") else "ray is not installed: pip install 'samestep[ray]'",
    "mpi": lambda: "" if shutil.which("mpirun") else "mpirun is not installed: apt-get install openmpi-bin",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", type=Part.parse, metavar="K/N", help="the K-th of N parts of what would run")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(EndsEndlessTests(config))
    if part := config.getoption("part"):
        config.pluginmanager.register(OnlyPart(part))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: to search it for garbage again and again took a third of such tests' time.

    What tests make is searched seldom, which saves those that compute in this process a tenth of it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs something that this machine lacks is skipped, and says so.

    The tests of deepspeed come first: its import takes four seconds of a core, and one worker of xdist then does it for all.
    Those of recording come next: some make records for half a minute, which nobody should begin when the others are done.
    """
    items.sort(key=lambda item: ("deepspeed" not in item.nodeid, "/recording/" not in item.nodeid))
    absent = {marker: module for marker, module in _MODULES.items() if importlib.util.find_spec(module) is None}
    has_gpus = _gpus()
    for item in items:
        for marker, module in absent.items():
            if item.get_closest_marker(marker):
                extra = framework_info(marker).extra
                item.add_marker(pytest.mark.skip(reason=f"{module} is not installed: pip install 'samestep[{extra}]'"))
        for marker, why_not in _ENGINES.items():
            if item.get_closest_marker(marker) and (reason := why_not()):
                if os.environ.get("SAMESTEP_ENGINES") == "required":
                    raise pytest.UsageError(f"SAMESTEP_ENGINES is required, and {reason}")
                item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("gpu") and not has_gpus:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _gpus() -> bool:
    return any(path.name.removeprefix("nvidia").isdigit() for path in pathlib.Path("/dev").glob("nvidia*"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line says which extras were absent."""
    if not hasattr(config, "workerinput"):
        print(f"extras absent: {', '.join(_absent_extras()) or 'none'}")


def _absent_extras() -> list[str]:
    metadata = importlib.metadata.metadata("samestep")
    needed = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    absent = []
    for extra in set(metadata.get_all("Provides-Extra") or []) - {"all"}:
        names = [each.name for each in needed if each.marker and each.marker.evaluate({"extra": extra})]
        if not all(_installed(name) for name in names):
            absent.append(extra)
    return sorted(absent)


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """One launcher for all tests: each framework is imported once."""
    with Launcher(worker="tests.one_batch_worker") as launcher:
        yield launcher


@pytest.fixture(scope="session")
def run_cell(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> RunCell:
    """Runs `framework:strategy+option=value` on a sized workload; keyword arguments are RunConfig's fields.

    The metric is of the first batch of held-out examples, unless it is asked for on all of them. What the seconds of a step go
    to is not looked for, unless `parts` asks for it.
    A strategy that is not available on this machine skips the test, with the reason.
    """

    def run(
        cell: str,
        workload: str,
        environment: dict[str, str] | None = None,
        all_held_out: bool = False,
        parts: bool = False,
        **fields: object,
    ) -> RunResult:
        out = tmp_path_factory.mktemp("run") / "run"
        # A stuck collective ends well before pytest's own timeout, and says where.
        defaults = {"out": str(out), "timeout_seconds": 60.0, "parity": True, "batch_size": 48, "steps": 6}
        try:
            asked = launcher.describe(Cell.parse(cell).apply_to(RunConfig(workload=workload, **{**defaults, **fields})))
            run, launch = parse(asked), launch_of(asked)
            check_launch(run, launch)
            brief = {} if all_held_out else {ONE_BATCH: "1"}
            brief |= {FIND_PARTS: "1"} if parts else {}
            return launcher.run(run, launch, environment={**brief, **(environment or {})})
        except Unavailable as error:
            pytest.skip(str(error))

    return run
