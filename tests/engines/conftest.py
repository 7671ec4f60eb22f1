import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.commands import Command, commands
from tests.engines.host_box import switched
from tests.engines.keeper import kept, own_name
from tests.engines.ray_box import RayBox
from tests.engines.slurm_box import SlurmBox

HOSTS = 4


@pytest.fixture(scope="session", autouse=True)
def _kept() -> Iterator[None]:
    """Nothing outlives pytest, not even if it is killed."""
    with kept():
        yield


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBox]:
    box = SlurmBox(tmp_path_factory.mktemp("slurm"))
    yield box
    box.close()


@pytest.fixture(scope="session")
def ray() -> Iterator[RayBox]:
    box = RayBox(Path(tempfile.mkdtemp(prefix=f"{own_name()}-")))  # not tmp_path: the path of a socket has to be short
    yield box
    box.close()


@pytest.fixture(scope="session")
def hosts() -> Iterator[list[str]]:
    """Hosts with addresses of their own."""
    with switched(HOSTS) as names:
        yield names


@pytest.fixture
def command() -> Iterator[Command]:
    """Starts commands of samestep that end with the test at the latest."""
    with commands() as start:
        yield start


@pytest.fixture(
    params=[
        pytest.param("slurm", marks=pytest.mark.slurm),
        pytest.param("mpi", marks=pytest.mark.mpi),
        pytest.param("torchrun"),
        pytest.param("ray", marks=pytest.mark.ray),
    ]
)
def on(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """Where to start a run, and the environment that takes."""
    if request.param == "slurm":
        return "slurm:nodes=2", request.getfixturevalue("slurm").environment
    if request.param == "ray":
        return request.getfixturevalue("ray").target, request.getfixturevalue("ray").environment
    return request.param, {}
