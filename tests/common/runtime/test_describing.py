"""A model's file that ends the process which builds it, and one that starts others: the file is named, and nothing is left."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import ANSWERED
from samestep.common.runtime.fork_protocol import Reply
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.models.description_request import run_tasks
from samestep.common.runtime.parent.processes.crash_report import ending
from tests.processes import alive

FILE = """
import os, subprocess, sys
import samestep

def started(pid):
    with open({pids!r}, "a") as file:
        file.write(f"{{pid}}\\n")

def build():
    import torch
    {does}
    return torch.nn.Sequential(torch.nn.Linear(4, 3))

model = samestep.Model(torch=build)
"""


@dataclasses.dataclass
class Pretended:
    """A fork server whose only worker ends with a code, after it has said a word."""

    code: int

    def wait_ready(self) -> None: ...

    def start_worker(self, directory: Path, log: Path, environment: dict[str, str], place: int | None) -> int:
        log.write_text("the last thing it said\n")
        return 1

    def poll(self, seconds: float) -> list[Reply]:
        return [{"ended": 1, "code": self.code}]

    def ending(self, number: int, code: int) -> str:
        return ending(code)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (0, "ended with exit code 0 before it was done; the file ends the process"),
        (7, "ended with exit code 7 before it was done; the file ends the process"),
        (-9, "was killed by SIGKILL before it was done; the file, a package that it imports, or a lack of memory"),
    ],
)
def test_a_process_that_ends_before_it_has_answered_is_told(tmp_path: Path, code: int, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_tasks({tmp_path: "torch"}, RunConfig(model="net.py"), lambda *_: Pretended(code))
    assert str(caught.value).startswith(f"--model net.py: the process that builds it {told}")
    assert str(caught.value).endswith("the last thing it said")


def own(folder: Path, does: str) -> RunConfig:
    rng = np.random.default_rng(0)
    arrays = {"inputs": rng.normal(size=(16, 4)).astype(np.float32), "targets": rng.integers(0, 3, 16)}
    np.savez(folder / "data.npz", **{f"{part}_{name}": a for part in ("train", "test") for name, a in arrays.items()})
    (folder / "net.py").write_text(FILE.format(pids=str(folder / "pids"), does=does))
    config = RunConfig(model=str(folder / "net.py"), data=str(folder / "data.npz"), parity=False)
    return dataclasses.replace(config, batch_size=4, steps=2, out=str(folder / "run"), dtype="float64")


@pytest.mark.torch
def test_a_builder_that_ends_the_process_is_blamed(launcher: Launcher, tmp_path: Path) -> None:
    (folder := tmp_path / "unseen").mkdir()
    with pytest.raises(ConfigError, match="ended with exit code 0 before it was done; the file ends the process"):
        launcher.describe(own(folder, "os._exit(0)"))
    (folder := tmp_path / "seen").mkdir()
    with pytest.raises(ConfigError, match=r"the function given as torch= failed: SystemExit: 3 \(net.py:"):
        launcher.describe(own(folder, "sys.exit(3)"))


@pytest.mark.torch
def test_what_a_builder_starts_is_ended_with_the_run(launcher: Launcher, tmp_path: Path) -> None:
    does = 'started(subprocess.Popen(["sleep", "300"], start_new_session=True).pid)'
    config = launcher.describe(own(tmp_path, does))
    described = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert described
    assert alive(described) == set()
    assert not (Path(config.described or "") / ANSWERED).exists(), "it would be copied into each run directory"
    assert launcher.run(parse(config), launch_of(config)).status == "trained"
    trained = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert trained > described
    assert alive(trained) == set()
