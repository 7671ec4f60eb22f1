"""The floors hold: neutral code imports no framework, torch and TensorFlow never share a process, servers stay cold."""

import dataclasses
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from samestep import common, experiments
from samestep.common.catalog import framework_info
from samestep.common.errors import ConfigError
from samestep.common.request import FRAMEWORKS, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import read_config
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.workload.initial import init
from samestep.experiments.cli.commands import COMMANDS
from tests.cells import SIZED
from tests.isolation_worker import ENOUGH, FRAMEWORK_MODULES
from tests.processes import descendants

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
CELLS = {"torch": "torch:ddp", "tf": "tf:mirrored"}


def neutral_modules() -> list[str]:
    names = [
        module.name
        for package in (common, experiments)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [
        *names,
        *(f"{FRAMEWORKS[name]}.catalog.{row}" for name in FRAMEWORKS for row in framework_info(name).strategies),
    ]


def ran(*line: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_neutral_modules_import_no_framework() -> None:
    names = neutral_modules()
    assert {
        "samestep.common.runtime.worker.worker",
        "samestep.experiments.compare",
        "samestep.torch_impl.catalog.ddp",
        "samestep.tf_impl.catalog.mirrored",
    } <= set(names)
    look = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print([name for name in {FRAMEWORK_MODULES!r} if name in sys.modules])"
    )
    done = ran(sys.executable, "-c", look)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


LINES = {
    "import samestep": "import samestep",
    "samestep --help": "from samestep.__main__ import main; sys.argv[1:] = ['--help']; main()",
    **{
        f"samestep {command} --help": f"from samestep.__main__ import main; sys.argv[1:] = ['{command}', '--help']; main()"
        for command in COMMANDS
    },
}


@pytest.mark.parametrize("line", LINES)
def test_help_imports_nothing_heavy(line: str) -> None:
    """What is only looked at answers at once: no framework, and none of what takes as long as one to import."""
    heavy = (*FRAMEWORK_MODULES, "numpy", "scipy", "pydantic")
    look = (
        "import sys\n"
        f"try: {LINES[line]}\n"
        "except SystemExit as ended: assert not ended.code\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = ran(sys.executable, "-c", look)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert ("usage: samestep" in done.stdout) == ("--help" in line)


def test_the_import_contracts_hold() -> None:
    done = ran(BIN / "lint-imports", "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("module", FRAMEWORK_MODULES)
@pytest.mark.parametrize("package", ["common", "experiments", "torch_impl"])
def test_the_linter_refuses_a_framework_at_module_level(package: str, module: str) -> None:
    path = f"{package}/{'program' if package == 'torch_impl' else 'runtime/worker/loop' if package == 'common' else 'run'}.py"
    line = [BIN / "ruff", "check", "--no-cache", "--select", "TID253", "--output-format", "concise"]
    done = subprocess.run(
        [*line, "--stdin-filename", path, "-"],
        cwd=ROOT,
        input=f"import {module}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("TID253" in done.stdout) == (package != "torch_impl"), done.stdout + done.stderr


def test_the_linter_is_asked_to() -> None:
    done = ran(BIN / "ruff", "check", "--show-settings", "common/runtime/worker/loop.py")
    assert "banned-module-level-imports (TID253)" in done.stdout


# --- inside the processes ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def looking() -> Iterator[Launcher]:
    with Launcher(worker="tests.isolation_worker") as launcher:
        yield launcher


def run_looking(
    launcher: Launcher, cell: str, path: Path, environment: dict[str, str] | None = None, **fields: object
) -> Path:
    framework, _, strategy = cell.partition(":")
    asked = RunConfig(framework=framework, strategy=strategy, devices=2, seed=12345, parity=False, out=str(path))
    asked = dataclasses.replace(asked, timeout_seconds=30.0, **fields)
    launcher.run(parse(asked), launch_of(asked), environment=environment)
    return path


@pytest.fixture(scope="module", params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in CELLS])
def looked(request: pytest.FixtureRequest, looking: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two devices whose processes wrote down what they found."""
    path = tmp_path_factory.mktemp("looked") / "run"
    return run_looking(looking, CELLS[request.param], path, workload=SIZED["mlp"], steps=3, batch_size=48)


def found_in(run: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(run.glob("found-*.json"))]


def framework_of(run: Path) -> str:
    return json.loads((run / "config.json").read_text())["framework"]


def test_a_worker_has_one_framework_only(looked: Path) -> None:
    framework = framework_of(looked)
    wanted = framework_info(framework).module
    others = set(FRAMEWORK_MODULES) - {wanted}
    for found in found_in(looked):
        assert wanted in found["loaded"]
        assert not others & set(found["loaded"])
        assert found["packages"] == [FRAMEWORKS[framework]]


def test_a_worker_starts_from_a_process_in_which_nothing_has_happened(looked: Path) -> None:
    everywhere = found_in(looked)
    assert len(everywhere) == {"torch": 2, "tf": 1}[framework_of(looked)]
    for found in everywhere:
        assert (found["tensors"], found["device"]) == (0, False)


def test_what_a_framework_leaves_in_a_temporary_directory_goes_with_the_launcher(
    looked: Path, looking: Launcher
) -> None:
    """TensorFlow writes the functions that it compiles to files, torch what it compiles to a directory."""
    for found in found_in(looked):
        assert Path(found["temporary"]) == Path(looking._scratch.name)


def test_a_fork_server_has_one_thread(looked: Path) -> None:
    framework = framework_of(looked)
    servers = [pid for pid in descendants() if server_of(pid, framework)]
    assert servers
    assert [len(os.listdir(f"/proc/{pid}/task")) for pid in servers] == [1] * len(servers)


def server_of(pid: int, framework: str) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return words[1:4] == ["-m", "samestep.common.runtime.worker.fork_server", framework]


@pytest.mark.parametrize(("model", "dtype"), [(model, "float32") for model in SIZED] + [("mlp", "float64")])
@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=getattr(pytest.mark, framework)) for framework, cell in CELLS.items()]
)
def test_initial_weights_are_the_same_bits_everywhere(
    looking: Launcher, tmp_path: Path, cell: str, model: str, dtype: str
) -> None:
    """Every process of either framework starts from the very numbers that `init` draws, rounded nowhere."""
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match=ENOUGH):
        run_looking(looking, cell, run, {ENOUGH: "1"}, workload=SIZED[model], dtype=dtype, batch_size=48)
    left = parse(read_config(run))
    wanted = init(left.workload.model, left.seed)
    dumps = sorted(run.glob("initial-*.npz"))
    assert len(dumps) == (2 if cell == "torch:ddp" else 1)
    for dump in dumps:
        with np.load(dump) as held:
            assert set(held.files) == set(wanted)
            for name, value in wanted.items():
                assert held[name].dtype == dtype
                assert held[name].astype(np.float64).tobytes() == value.tobytes(), name


def test_a_run_starts_without_scipy() -> None:
    """Its import takes 0.15 of 0.65 s; whatever needs it imports it then."""
    line = "import sys, samestep.common.runtime.parent.launcher; print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "'numpy'" in done.stdout and "'scipy'" not in done.stdout
