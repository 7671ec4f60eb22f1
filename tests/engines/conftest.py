from collections.abc import Iterator

import pytest

from tests.engines.slurm_box import SlurmBox


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBox]:
    box = SlurmBox(tmp_path_factory.mktemp("slurm"))
    yield box
    box.close()
