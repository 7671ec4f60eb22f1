"""What a user's model imports is imported once, in the process that forks, unless a fork behind it would not be safe."""

import threading
from pathlib import Path

import pytest

from samestep.common.runtime import imports
from samestep.common.runtime.imports import Imports
from tests.conftest import RunCell

pytestmark = pytest.mark.torch
OWN = Path(__file__).parents[2] / "own" / "importing.py"


def logged(run_cell: RunCell, folder: Path, model: str, **fields: object) -> str:
    asked = {"model": f"{OWN}:{model}", "data": f"{OWN}:points", "out": str(folder), "dtype": "float64", **fields}
    result = run_cell("torch:ddp", "digits-mlp", devices=2, steps=2, **asked)
    assert result.parity.passed, result.parity.reason
    return (folder / "rank-1.log").read_text()


def test_a_package_is_imported_before_the_workers_are_forked(run_cell: RunCell, tmp_path: Path) -> None:
    """With the environment that the user's file sets; a draw that it took by its name is held still all the same."""
    assert "imported before, asked for quiet" in logged(run_cell, tmp_path / "run", "NOISY", dropout=False)


def test_a_package_that_starts_a_thread_is_imported_by_each_worker(run_cell: RunCell, tmp_path: Path) -> None:
    assert "imported here" in logged(run_cell, tmp_path / "run", "THREADED")


def test_an_import_that_starts_a_thread_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another thread ends meanwhile."""
    other = threading.Thread(target=threading.Event().wait, args=(0.2,), name="other")
    other.start()
    waits = "next(each for each in threading.enumerate() if each.name == 'other').join()"
    lines = (
        "import threading",
        "END = threading.Event()",
        "threading.Thread(target=END.wait, daemon=True).start()",
        waits,
    )
    (tmp_path / "starting.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match=r"importing starting, \.\.\. has started a thread"):
        imports.preload(Imports(("starting",)))
    import starting

    starting.END.set()
