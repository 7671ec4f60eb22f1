"""Installed, everything is below the one name `samestep`: a user's own `common/` or `experiments/` never meets ours."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from samestep.experiments.cli.commands import COMMANDS
from tests.sharing import made_once

ROOT = Path(__file__).parents[1]
RUN = ["run", "--framework", "numpy", "--strategy", "oracle", "--workload", "synthetic-mlp+width=8"]
RUN += ["--dtype", "float64", "--steps", "3"]
LOOK = "import samestep.common.run, samestep.experiments.run as run, sys; print(run.__file__, 'experiments' in sys.modules)"


def ran(folder: Path, *line: str | Path) -> str:
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as pip builds it from a checkout."""
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]

    def build(folder: Path) -> None:
        ran(ROOT, *line, "--wheel-dir", str(folder), ".")

    (built,) = made_once(tmp_path_factory, "wheel", build).glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment's Python, with the wheel and what it depends on, but no checkout on its path."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    ran(ROOT, sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps", str(wheel))
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read
    return python


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's folder, with packages that are named like folders of ours."""
    for name in ("common", "experiments", "torch_impl", "tf_impl"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the own package of a user was imported')")
    return tmp_path


def test_a_wheel_has_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        assert "samestep/torch_impl/strategies/ddp.py" in archive.namelist()
        page = {f"samestep/experiments/page/{name}" for name in ("page.css", "templates/page.html.j2")}
        assert {"samestep/py.typed", *page} <= set(archive.namelist())
        carried = ("machines/a100-80gb.toml", "vtrain/LICENSE", "vtrain/single_node.csv", "published/megatron.csv")
        assert {f"samestep/common/seconds/{name}" for name in carried} <= set(archive.namelist())
    assert {top for top in tops if not top.endswith(".dist-info")} == {"samestep"}


def test_from_a_wheel(fresh: Path, own: Path) -> None:
    """The command, `python -m samestep`, and an import, beside a user's own packages."""
    printed = ran(own, fresh.parent / "samestep", *RUN, "--out", "first")
    assert "Run: first" in printed
    assert "Run: second" in ran(own, fresh, "-m", "samestep", *RUN, "--out", "second")
    file, bare = ran(own, fresh, "-c", LOOK).split()
    assert str(fresh.parents[1]) in file
    assert bare == "False"


def test_the_line_that_repeats_a_run_works_beside_files_named_as_pythons(own: Path) -> None:
    folder = Path(sys.executable).parent
    for name in ("queue", "random", "types"):
        (own / f"{name}.py").write_text("raise RuntimeError('the own module of a user was imported')")
    _, _, command = ran(own, folder / "samestep", *RUN, "--out", "first").partition("\nAgain: ")
    assert command and "\nRun: runs/" in ran(own, "env", f"PATH={folder}:/usr/bin:/bin", "sh", "-c", command)


def test_the_line_that_starts_a_prepared_run_works_beside_files_named_as_pythons(own: Path) -> None:
    folder = Path(sys.executable).parent
    (own / "random.py").write_text("raise RuntimeError('the own module of a user was imported')")
    for more in ([], ["--for", "mpi"]):
        out = f"run{len(more)}"
        line = ran(own, folder / "samestep", *RUN, "--prepare", *more, "--out", out).strip().splitlines()[-1].split()
        assert Path(line[-1]).name == out
        ran(own, "env", f"PATH={folder}:/usr/bin:/bin", *line)
        assert (own / out / "result.json").exists()


def test_from_an_editable_install(own: Path) -> None:
    script = Path(sys.executable).parent / "samestep"
    assert "Run: first" in ran(own, script, *RUN, "--out", "first")
    file, bare = ran(own, sys.executable, "-c", LOOK).split()
    assert file == str(ROOT / "samestep" / "experiments" / "run.py")
    assert bare == "False"


def test_in_a_checkout(tmp_path: Path) -> None:
    """`python -m experiments.run` is how a clone is used, as `samestep` is elsewhere, with one copy of every module."""
    line = [sys.executable, "-m", "experiments.run", *RUN[1:], "--out", str(tmp_path / "run")]
    assert f"Run: {tmp_path / 'run'}" in ran(ROOT, *line)


@pytest.mark.parametrize("line", [[], *([name] for name in COMMANDS if name != "worker")])
def test_the_command_helps(line: list[str]) -> None:
    assert "usage: samestep" in ran(ROOT, sys.executable, "-m", "samestep", *line, "--help")


def test_help_is_a_command_as_well() -> None:
    line = [sys.executable, "-m", "samestep", "help"]
    assert ran(ROOT, *line).startswith("samestep: one training step")
    assert ran(ROOT, *line, "worker").startswith("usage: samestep worker")


@pytest.mark.parametrize(("name", "told"), [("rnu", "Did you mean 'run'?"), ("forecast", "It is called predict here.")])
def test_an_unknown_command_is_one_line(name: str, told: str) -> None:
    line = [sys.executable, "-m", "samestep", name]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    choices = ", ".join(COMMANDS)
    assert done.stderr == f"samestep: unknown command '{name}'. {told} Choose from: {choices}.\n"
