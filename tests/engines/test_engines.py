"""A prepared run under the engines themselves, by the scripts of `--for`: the losses of the local launcher, bit for bit."""

import contextlib
import functools
import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.parent.processes.network import HOST
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments.printing.text import github
from samestep.experiments.submitting.targets import read_target, write_script
from tests.conftest import RunCell
from tests.engines.ray_box import RayBox
from tests.engines.slurm_box import SlurmBox

ROOT = Path(__file__).parents[2]
WORKLOAD = "digits-mlp+width=32"
ASKED = {"dtype": "float64", "optimizer": "adamw", "devices": 2, "batch_size": 48, "steps": 8}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Without these variables mpirun refuses root."""


Start = Callable[[Path], str]
"""Starts a run by its script, and waits for its end; returns what it prints."""


def by(*line: str, **environment: str) -> Start:
    """Starts scripts with a command."""
    return functools.partial(started, line, environment)


def started(line: Sequence[str], environment: dict[str, str], script: Path) -> str:
    """Runs a script, which has to end well; returns what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, **environment}
    with subprocess.Popen(
        [*line, str(script)], cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            told, _ = process.communicate(timeout=200)
        except BaseException:
            process.terminate()  # every engine ends its processes
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=30)
            raise
        finally:
            process.kill()
    assert process.returncode == 0, told
    return told


def is_the_same(run_cell: RunCell, target: str, cell: str, tmp_path: Path, start: Start) -> str:
    """Starts a run by its script; returns what that prints."""
    config = Cell.parse(cell).apply_to(RunConfig(workload=WORKLOAD, out=str(tmp_path / "a run"), **ASKED))
    run = parse(config)
    directory = prepare(run, launch_of(config))
    script = write_script(read_target("--for", target), run, directory)
    told = start(script)
    result, local = load_result(directory), run_cell(cell, WORKLOAD, **ASKED)
    assert result.parity.passed, result.parity.reason
    assert result.losses == local.losses
    assert not list(directory.glob("rendezvous*")) and not (directory / "error.json").exists()
    return told


def cells(*quick: str, slow: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Cells to try, and those that only `make test-slow` tries."""
    named = [(cell, ()) for cell in quick] + [(cell, (pytest.mark.slow,)) for cell in slow]
    params = [
        pytest.param(cell, marks=[*marks, getattr(pytest.mark, cell.partition(":")[0])], id=cell)
        for cell, marks in named
    ]
    return pytest.mark.parametrize("cell", params)


@pytest.mark.slurm
@cells(slow=["torch:ddp", "tf:multi_worker_mirrored", "tf:parameter_server", "torch:fsdp"])
def test_slurm(run_cell: RunCell, slurm: SlurmBox, tmp_path: Path, cell: str) -> None:
    is_the_same(run_cell, "slurm:nodes=2", cell, tmp_path, slurm.finish)


@pytest.mark.mpi
@cells("tf:multi_worker_mirrored", slow=["torch:ddp", "tf:parameter_server"])
def test_open_mpi(run_cell: RunCell, tmp_path: Path, cell: str) -> None:
    is_the_same(run_cell, "mpi", cell, tmp_path, by("bash", **AS_ROOT))


@cells(slow=["torch:ddp", "tf:multi_worker_mirrored"])
def test_torchrun(run_cell: RunCell, tmp_path: Path, cell: str) -> None:
    is_the_same(run_cell, "torchrun", cell, tmp_path, by("bash"))


@pytest.mark.ray
@cells(slow=["torch:ddp", "tf:multi_worker_mirrored"])  # Ray itself takes 14 s to start, or minutes on busy cores
def test_ray(run_cell: RunCell, ray: RayBox, tmp_path: Path, cell: str) -> None:
    environment = {**ray.environment, "RAY_ADDRESS": ray.target}
    is_the_same(run_cell, "ray", cell, tmp_path, by(sys.executable, **environment))


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.mpi
@pytest.mark.ray
@cells("torch:ddp", "tf:multi_worker_mirrored", "tf:parameter_server")
def test_the_same_directory_under_every_engine(
    run_cell: RunCell, slurm: SlurmBox, ray: RayBox, tmp_path: Path, cell: str
) -> None:
    """Prints a table of them; `is_the_same` holds each against our own launcher's losses."""
    ways: dict[str, tuple[str, Start]] = {
        "torchrun": ("torchrun", by("bash")),
        "Slurm": ("slurm:nodes=2", slurm.finish),
        "Open MPI": ("mpi", by("bash", **AS_ROOT)),
        "Ray": ("ray", by(sys.executable, **ray.environment, RAY_ADDRESS=ray.target)),
    }
    rows = [[cell, "local", *told_of(run_cell(cell, WORKLOAD, **ASKED))]]
    for engine, (target, start) in ways.items():
        (folder := tmp_path / target.partition(":")[0]).mkdir()
        is_the_same(run_cell, target, cell, folder, start)
        rows.append(["", engine, *told_of(load_result(folder / "a run"))])
    print(f"\n{github(['row', 'engine', 'digest of the losses', 'last loss', 'same step'], rows)}")
    assert len({losses for _, _, losses, *_ in rows}) == 1


def told_of(result: RunResult) -> list[str]:
    """A digest of the losses in every bit, the last of them, and the verdict."""
    losses = struct.pack(f"{len(result.losses)}d", *result.losses)
    return [hashlib.sha256(losses).hexdigest()[:16], result.losses[-1].hex(), "yes" if result.parity.passed else "no"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.slurm
@pytest.mark.mpi
def test_open_mpi_in_slurm(run_cell: RunCell, slurm: SlurmBox, tmp_path: Path) -> None:
    alone = {"OMPI_MCA_plm": "^slurm", "OMPI_MCA_ras": "^slurm"}
    start = by("srun", "-N1", "-n1", "bash", **AS_ROOT, **alone, **slurm.environment)
    told = is_the_same(run_cell, "mpi", "torch:ddp", tmp_path, start)
    assert "OMPI_COMM_WORLD_RANK of Open MPI takes precedence over SLURM_PROCID of Slurm" in told


@pytest.mark.slow
@pytest.mark.torch
def test_what_skypilot_is_to_run_runs(run_cell: RunCell, tmp_path: Path) -> None:
    """Its own program starts machines in clouds; here its variables are set, and a shell runs what it would."""
    yaml = pytest.importorskip("yaml")
    shell = tmp_path / "sky"
    shell.write_text(
        f"""import subprocess, sys, yaml
run = yaml.safe_load(open(sys.argv[1]))["run"].replace("'/runs/a run'", "'{tmp_path}/a run'")
sys.exit(subprocess.run(["bash", "-c", run]).returncode)
"""
    )
    place = {"SKYPILOT_NUM_NODES": "1", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": f"{HOST}\n"}
    assert yaml.safe_load("a: 1") == {"a": 1}
    is_the_same(run_cell, "skypilot", "torch:ddp", tmp_path, by(sys.executable, str(shell), **place))


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("slurm:nodes=2,partition=all,time=10,mem=100", "to start at"),
        ("slurm:nodes=2,partition=none", "invalid partition specified: none"),
    ],
)
def test_slurm_takes_the_script(slurm: SlurmBox, tmp_path: Path, target: str, told: str) -> None:
    config = RunConfig(strategy="ddp", workload=WORKLOAD, out=str(tmp_path / "run"), **ASKED)
    run = parse(config)
    script = write_script(read_target("--for", target), run, prepare(run, launch_of(config)))
    assert told in slurm.run("sbatch", "--test-only", str(script))
