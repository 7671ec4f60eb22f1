import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.ray_box import RayBox
from tests.engines.slurm_box import SlurmBox


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBox]:
    box = SlurmBox(tmp_path_factory.mktemp("slurm"))
    yield box
    box.close()


@pytest.fixture(scope="session")
def ray() -> Iterator[RayBox]:
    box = RayBox(Path(tempfile.mkdtemp(prefix="ray")))  # not tmp_path: the path of a socket has to be short
    yield box
    box.close()
