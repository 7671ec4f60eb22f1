"""A prepared run under the engines themselves: the losses of the local launcher, bit for bit."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.prepare import prepare
from samestep.common.runtime.records import load_result
from tests.conftest import RunCell
from tests.engines.slurm_box import SlurmBox

ROOT = Path(__file__).parents[2]
WORKLOAD = "digits-mlp+width=32"
ASKED = {"dtype": "float64", "optimizer": "adamw", "devices": 2, "batch_size": 48, "steps": 8}
PYTHON = (sys.executable, "-m", "samestep", "worker")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np")
TORCHRUN = (str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc-per-node")


def started(line: Sequence[str], **environment: str) -> str:
    """Runs a line, which has to end well; returns what it prints."""
    own = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    with subprocess.Popen(
        line, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            told, _ = process.communicate(timeout=120)
        finally:
            process.terminate()  # every engine ends its processes
    assert process.returncode == 0, told
    return told


def same_losses(run_cell: RunCell, cell: str, tmp_path: Path, line: Sequence[str], **environment: str) -> str:
    config = Cell.parse(cell).apply_to(RunConfig(workload=WORKLOAD, out=str(tmp_path / "run"), **ASKED))
    run = parse(config)
    directory = prepare(run, launch_of(config))
    processes = str(len(run.strategy.topology(run)))
    told = started([processes if word == "N" else word for word in (*line, *PYTHON, str(directory))], **environment)
    result, local = load_result(directory), run_cell(cell, WORKLOAD, **ASKED)
    assert result.parity.passed, result.parity.reason
    assert result.losses == local.losses
    assert not list(directory.glob("meeting*")) and not (directory / "error.json").exists()
    return told


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBox]:
    box = SlurmBox(tmp_path_factory.mktemp("slurm"))
    yield box
    box.close()


def cells(*quick: str, slow: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Cells to try, and those that only `make test-slow` tries."""
    named = [(cell, ()) for cell in quick] + [(cell, (pytest.mark.slow,)) for cell in slow]
    params = [
        pytest.param(cell, marks=[*marks, getattr(pytest.mark, cell.partition(":")[0])], id=cell)
        for cell, marks in named
    ]
    return pytest.mark.parametrize("cell", params)


@pytest.mark.slurm
@cells("torch:ddp", "tf:multi_worker_mirrored", slow=["tf:parameter_server", "torch:fsdp"])
def test_slurm(run_cell: RunCell, slurm: SlurmBox, tmp_path: Path, cell: str) -> None:
    same_losses(run_cell, cell, tmp_path, ["srun", "-N2", "-n", "N", "--overcommit"], **slurm.environment)


@pytest.mark.mpi
@cells("tf:parameter_server", slow=["torch:ddp", "tf:multi_worker_mirrored"])
def test_open_mpi(run_cell: RunCell, tmp_path: Path, cell: str) -> None:
    same_losses(run_cell, cell, tmp_path, [*MPIRUN, "N"])


@cells(slow=["torch:ddp", "tf:multi_worker_mirrored"])
def test_torchrun(run_cell: RunCell, tmp_path: Path, cell: str) -> None:
    same_losses(run_cell, cell, tmp_path, [*TORCHRUN, "N", "--no-python"])


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.slurm
@pytest.mark.mpi
def test_open_mpi_in_slurm(run_cell: RunCell, slurm: SlurmBox, tmp_path: Path) -> None:
    line = ["srun", "-N1", "-n1", *MPIRUN, "N", "--mca", "plm", "^slurm", "--mca", "ras", "^slurm"]
    told = same_losses(run_cell, "torch:ddp", tmp_path, line, **slurm.environment)
    assert "OMPI_COMM_WORLD_RANK of Open MPI counts before SLURM_PROCID of Slurm" in told
