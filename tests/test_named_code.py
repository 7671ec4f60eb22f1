"""Code that files name: said before it runs, refused if it changed; what only reads a run imports nothing."""

import errno
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samestep.common.catalog import catalogue
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.directory import ANSWERED, write_json
from samestep.common.runtime.parent.attempts import prepare
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.models import description_request
from samestep.common.runtime.worker import private_network, worker
from samestep.common.workload import code
from samestep.common.workload.declared import import_file
from samestep.experiments import clean, export, report
from samestep.experiments.cli import ending
from samestep.experiments.comparing import comparison_file, execution
from samestep.experiments.comparing.baseline import load_earlier
from samestep.experiments.comparing.comparison_file import check_code
from samestep.experiments.comparing.comparison_request import describe
from tests.children import in_child
from tests.odd_inputs import a_run

MODEL = """
import samestep

def build():
    import torch

    return torch.nn.Linear(4, 3)

model = samestep.Model(torch=build)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and its data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    inputs, targets = np.ones((8, 4), np.float32), np.arange(8) % 3
    np.savez(tmp_path / "d.npz", train_inputs=inputs, train_targets=targets, test_inputs=inputs, test_targets=targets)
    return tmp_path


# --- run directories --------------------------------------------------------------------------------------------------


@pytest.fixture
def prepared(here: Path, launcher: Launcher) -> Path:
    """A run of the model, prepared."""
    own = {"model": str(here / "m.py"), "data": str(here / "d.npz")}
    config = launcher.describe(RunConfig(strategy="single", batch_size=8, steps=1, prepare=True, out="run", **own))
    return prepare(parse(config), launch_of(config))


def ran(directory: Path, capfd: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """What a worker that is started by hand says, up to where it imports the file: an error, and the line before."""

    def start() -> str:
        run, _ = worker.read_run(directory)
        worker._allow_code(run, directory, is_told=True)
        source = run.workload.model.facts.source.rpartition(":")[0]
        try:
            import_file(source, "torch")
        except ConfigError as error:
            return str(error)
        return ""

    return in_child(start), capfd.readouterr().err


@pytest.mark.torch
def test_a_worker_says_which_code_it_runs(prepared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(Path("m.py").resolve())
    assert list(json.loads((prepared / "model" / "code.json").read_text()))[-1] == file
    assert ran(prepared, capfd) == ("", f"samestep: runs code from {file}, which {prepared} names\n")


@pytest.mark.torch
def test_a_worker_refuses_code_that_is_not_what_was_prepared(prepared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("m.py").write_text(MODEL + "open('canary', 'w')\n")
    said, _ = ran(prepared, capfd)
    assert (
        said
        == f"{Path('m.py').resolve()} is not the file that this run was prepared with; repeat the command that prepared it."
    )
    Path("m.py").write_text(MODEL)
    Path("evil").mkdir()
    Path("evil/m.py").write_text(MODEL + "open('canary', 'w')\n")
    file = prepared / "model" / "model.json"
    file.write_text(file.read_text().replace("/m.py", "/evil/m.py"))
    said, _ = ran(prepared, capfd)
    assert "evil/m.py is not the file that this run was prepared with" in str(said)
    (prepared / "model" / "code.json").unlink()
    with pytest.raises(ConfigError, match=r"code.json cannot be read: there is no such file; prepare the run again"):
        code.allow_only(str(prepared / "model"))
    assert not Path("canary").exists()


@pytest.mark.parametrize("content", ["[]", '{"/m.py": 3}', "{", "[" * 100_000])
def test_digests_that_are_none_are_told(tmp_path: Path, content: str) -> None:
    (tmp_path / code.CODE).write_text(content)
    with pytest.raises(ConfigError, match=r"code.json cannot be read: .*; prepare the run again"):
        code.allow_only(str(tmp_path))


def test_a_worker_that_is_started_by_hand_describes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A description imports the file that the directory names; only our launcher asks for one."""
    monkeypatch.setattr(worker, "enable_stack_dumps", lambda: None)  # pytest keeps stderr from it
    (tmp_path / "evil.py").write_text("open('canary', 'w')\n")
    for name in ("describe.json", "port.json"):
        asked = {
            "framework": "torch",
            "model": f"{tmp_path}/evil.py:model",
            "data": f"{tmp_path}/evil.py:data",
            "seed": 0,
        }
        write_json(tmp_path / name, asked)
    assert worker.main([str(tmp_path)], lambda *_: None) == 2
    assert "holds no readable config.json" in capsys.readouterr().err
    assert not (tmp_path / "canary").exists()


READERS: dict[str, Callable[[], object]] = {
    "report": lambda: report.main(["runs", "-o", "page.html"]),
    "export": lambda: export.main(["runs", "--to", "tensorboard", "-o", "out"]),
    "clean": lambda: clean.main([]),
    "clean --runs": lambda: clean.main(["--runs"]),
    "--against": lambda: load_earlier(Path("runs/one")),
}


@pytest.mark.parametrize("name", READERS)
def test_what_reads_a_run_imports_nothing_that_it_names(here: Path, name: str) -> None:
    (here / "evil.py").write_text("open('canary', 'w')\n")
    run = a_run(here / "runs" / "one")
    for file in (run / "config.json", run / "result.json"):
        values = json.loads(file.read_text())
        asked = values if file.name == "config.json" else values["config"]
        asked |= {"model": "evil.py", "data": "evil.py:data", "described": "model"}
        write_json(file, values)
    (run / "model").mkdir()
    write_json(run / "model" / "model.json", {"source": f"{here}/evil.py:model"})
    (here / "runs" / "compare.toml").write_text('model = "evil.py"\ndata = "evil.py:data"\n')
    READERS[name]()
    assert not (here / "canary").exists()


# --- comparisons ------------------------------------------------------------------------------------------------------


def test_a_comparison_keeps_the_digests_of_its_code(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = here / "compare.toml"
    comparison_file.write_file(file, describe({"strategies": "torch:single", "model": "m.py:model", "data": "d.npz"}))
    assert execution.ask(file, {}).base.model == "m.py:model"
    assert capsys.readouterr().err == f"samestep: runs code from m.py, which {file} names\n"
    (here / "m.py").write_text(MODEL + "\n")
    for given in ({}, {"data": "other.npz"}):
        with pytest.raises(
            ConfigError, match=r"m.py has changed since .*compare.toml was written; name it with --model"
        ):
            execution.ask(file, given)
    assert execution.ask(file, {"model": "m.py"}).base.model == "m.py"
    assert capsys.readouterr().err == "", "the user named it"


def test_code_that_nobody_recorded_is_only_said(here: Path) -> None:
    file = here / "mine.toml"
    file.write_text('model = "m.py"\ndata = "d.py:arrays"\n')
    assert check_code(file, comparison_file.read_file(file), {}) == [
        f"runs code from {name}, which {file} names" for name in ("m.py", "d.py")
    ]
    file.write_text('workload = "digits-mlp"\ndata = "d.npz"\n')
    assert check_code(file, comparison_file.read_file(file), {}) == []


@pytest.mark.parametrize("digests", ["3", '["m.py"]', '"x"'])
def test_digests_of_another_kind_are_told(here: Path, digests: str) -> None:
    (here / "mine.toml").write_text(f'sha256 = {digests}\nmodel = "m.py"\n')
    with pytest.raises(ConfigError, match="sha256 is not a table of files"):
        check_code(here / "mine.toml", comparison_file.read_file(here / "mine.toml"), {})


# --- what the page says beside ----------------------------------------------------------------------------------------


def test_a_description_is_made_in_no_private_network(tmp_path: Path) -> None:
    places: list[object] = []

    class Server:
        def wait_ready(self) -> None:
            pass

        def start_worker(self, directory: Path, log: Path, environment: dict[str, str], place: int | None) -> int:
            places.append(place)
            (directory / ANSWERED).touch()
            return 1

        def poll(self, seconds: float) -> list[dict[str, int]]:
            return [{"ended": 1, "code": 0}]

    description_request.run_tasks({tmp_path: "torch"}, RunConfig(), lambda framework, threads, seconds: Server())
    assert places == [None]


def test_every_row_whose_peers_run_code_says_so() -> None:
    """Rows that unpickle, and those with TensorFlow's servers; the others exchange tensors only."""
    told = {
        f"{framework}:{row.name}": row.danger_of_open_ports
        for framework, row in catalogue()
        if row.danger_of_open_ports
    }
    torch = {name for name, said in told.items() if "every user of this machine" in said and "unpickle" in said}
    tf = {name for name, said in told.items() if "anyone who reaches" in said and "{ports}" in said}
    assert torch == {"torch:rpc", "torch:rpc_parameter_server", "torch:pp", "torch:hybrid"}
    assert tf == {"tf:multi_worker_mirrored", "tf:parameter_server", "tf:dtensor"}
    assert torch | tf == set(told)


def test_the_kernels_words_for_too_many_namespaces_are_translated() -> None:
    said = private_network._reason(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert said == "namespaces are used up or forbidden: sysctl user.max_net_namespaces"
    assert private_network._reason(OSError(errno.EPERM, "Operation not permitted")) == "Operation not permitted"


def test_temporary_files_are_their_users_alone() -> None:
    old = os.umask(0)
    try:
        with Launcher() as launcher:
            assert Path(launcher._scratch.name).stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(old)


@pytest.mark.parametrize(
    "odd", ["\x1b]0;title\x07", "\x1b[2J", "\r", "\x08", "\x7f", "\x9b31m", "\u202e", "\u2028", "\udcff"]
)
def test_what_is_printed_obeys_nothing(odd: str) -> None:
    held = io.BytesIO()
    stream = ending._Shown(io.BufferedWriter(held), "utf-8", errors="backslashreplace")
    print(f"a{odd}b\tc", file=stream, flush=True)
    written = held.getvalue().decode()
    assert written == f"a{repr(odd)[1:-1]}b\tc\n" and written.replace("\t", "").rstrip("\n").isprintable()


def test_what_is_plain_is_printed_as_it_is() -> None:
    held = io.BytesIO()
    stream = ending._Shown(io.BufferedWriter(held), "utf-8", errors="backslashreplace")
    print("länge | 日本 |\n\n\tx", end="", file=stream, flush=True)
    assert held.getvalue().decode() == "länge | 日本 |\n\n\tx"
