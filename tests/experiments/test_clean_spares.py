"""What `samestep clean` never touches: random trees of other people's files in and around ours, with every flag."""

import contextlib
import io
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samestep.common.errors import SamestepError
from samestep.common.files.writing import make_folder, open_directory, replacing
from samestep.common.files.written import LIST
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import MODEL, open_run, write_json
from samestep.experiments import clean
from samestep.experiments.comparing.comparison_file import NAME
from tests.experiments.comparisons import placed

KEY = "0123456789abcdef01234567"
OLD = '{"framework": "torch", "strategy": "ddp", "techniques": {}}'
"""What an earlier version's `config.json` has."""
PLACES = (
    ".", "runs", "runs/one", "runs/one/model", "runs/one/model/torch", "runs/queued", "runs/night",
    "runs/night/torch-ddp", "runs/night/torch-ddp/1", "elsewhere", "old", "cache/samestep", "cache/samestep/oracle",
    f"cache/samestep/oracle/{KEY}", f"cache/samestep/oracle/{KEY}/20.cut", "cache/samestep/data",
    "cache/samestep/machines", "outside",
)  # fmt: skip
NAMES = (
    "config.json", "result.json", "error.json", "metrics.jsonl", "state.npz", "rank-0.log", "train.log", "data.npz",
    "model", "model.json", "initial.npz", "torch", "trace.json", "profile-rank-0.json", "process-rank-9.json",
    "config.json.0123.tmp", LIST, NAME, "report.html", "lock", "20", "30.cut", "photos", "here.toml", "mine.toml",
    f"{KEY}.npz", KEY, "mine.npz", "torch-ddp", "1", "notes.md",
)  # fmt: skip
FLAGS = ("--runs", "--oracle", "--data", "--machines", "--all")
NAMED = ("runs/one", "runs/night", "runs/queued", "runs/night/torch-ddp/1", "old", "elsewhere", "runs", "outside", "/")
FINISHED = ("config.json", "metrics.jsonl", "process-rank-0.json", "rank-0.log", "result.json")
Snapshot = dict[str, tuple[object, ...]]


# --- a tree -----------------------------------------------------------------------------------------------------------


def put(path: Path, below: Path | None = None) -> None:
    """A file as samestep writes it, longer than any of those beside it."""
    with replacing(path, below) as file:
        file.write(b"ours" * 25)


def a_run(path: Path, **fields: object) -> Path:
    open_run(path, RunConfig(**fields))
    if not fields.get("prepare"):
        for name in FINISHED[1:-1]:
            put(path / name)
        (path / "error.json").unlink()
        write_json(path / "result.json", {})
    return path


def what_we_make() -> None:
    """Runs, a comparison and all caches, in the present folder; and beside them a run of an earlier version."""
    one = a_run(Path("runs/one"))
    for folder in (one / MODEL, one / MODEL / "torch"):
        make_folder(folder, one)
        for name in ("model.json", "initial.npz"):
            put(folder / name, one)
    a_run(Path("runs/queued"), prepare=True)
    for path in ("elsewhere", "copied"):
        a_run(Path(path))
    open_directory(night := Path("runs/night"))
    put(night / NAME)
    a_run(placed(night, "torch:ddp", 1))
    cache = Path("cache/samestep")
    for folder in (cache / "oracle" / KEY, cache / "oracle" / KEY / "20.cut", cache / "data", cache / "machines"):
        open_directory(folder)
    for name in (f"oracle/{KEY}/20.cut/state.npz", f"data/{KEY}.npz", "machines/here.toml"):
        put(cache / name)


def what_others_make() -> None:
    """Files that have our names and are not ours."""
    for folder in ("old", "outside/torch"):
        fill(Path(folder))


def fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.json", "initial.npz", "state.npz", "rank-0.log"):
        (folder / name).write_text(OLD)


PLANTS: Mapping[str, Callable[[Path], object]] = {
    "file": lambda path: path.write_text("mine"),
    "folder": lambda path: path.mkdir(),
    "folder with files": lambda path: fill(path),
    "link to a file": lambda path: path.symlink_to(Path("outside/torch/model.json").absolute()),
    "link to a folder": lambda path: path.symlink_to(Path("outside").absolute()),
    "link to a run": lambda path: path.symlink_to(Path("elsewhere").absolute()),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "pipe": os.mkfifo,
    "hard link": lambda path: os.link("outside/torch/state.npz", path),
    "copy of a run": lambda path: shutil.copytree("copied", path),
    "empty file": lambda path: path.touch(),
}


def plant(path: Path, kind: str) -> bool:
    """Puts something there, in place of what was there; returns whether it could."""
    if not path.parent.is_dir() or path.parent.is_symlink() or path in map(Path, ("outside", "old", "elsewhere")):
        return False
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    PLANTS[kind](path)
    return True


def snapshot() -> Snapshot:
    """Everything in the present folder, byte for byte and link for link."""
    found: Snapshot = {}
    for folder, folders, files in os.walk("."):
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            status = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
            if stat.S_ISREG(status.st_mode):
                content = Path(path).read_bytes()
            found[os.path.normpath(path)] = stat.S_IFMT(status.st_mode), content
    return found


def below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


@contextlib.contextmanager
def a_new_folder(folder: Path) -> Iterator[None]:
    folder.mkdir()
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def folders() -> Iterator[Iterator[Path]]:
    """Names of folders that are not there yet, in memory if there is room: a busy disk takes minutes for 200 trees."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as home:
        yield (Path(home, str(number)) for number in itertools.count())


# --- what stays, and what goes ----------------------------------------------------------------------------------------


FIXED = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
DRAWN = {
    "plants": st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES), st.sampled_from(sorted(PLANTS))), max_size=12
    ),
    "moved": st.sampled_from(
        ["", "", "runs", "runs/one", "runs/night", "cache/samestep/oracle", "cache/samestep/data"]
    ),
    "flags": st.lists(st.sampled_from(FLAGS), max_size=2, unique=True),
    "named": st.lists(st.sampled_from(NAMED), max_size=2, unique=True),
}


@settings(max_examples=60, **FIXED)
@given(**DRAWN)
def test_what_is_not_ours_stays_as_it_is(
    folders: Iterator[Path], plants: list[tuple[str, str, str]], moved: str, flags: list[str], named: list[str]
) -> None:
    with a_new_folder(next(folders)):
        what_we_make()
        ours = set(snapshot())
        what_others_make()
        for place, name, kind in plants:
            path = os.path.normpath(os.path.join(place, name))
            if plant(Path(path), kind):
                ours = {each for each in ours if not below(each, path)}
        if moved and os.path.isdir(moved):
            os.rename(moved, "moved")  # and a link leads there
            os.symlink(os.path.abspath("moved"), moved)
            behind = {each for each in ours if below(each, moved)}
            ours -= behind
            if any(below(name, moved) and name != moved for name in named):  # somebody named a run behind the link
                ours |= {each.replace(moved, "moved", 1) for each in behind}
        foreign = {path: what for path, what in snapshot().items() if path not in ours}
        with contextlib.suppress(SamestepError), contextlib.redirect_stdout(io.StringIO()):
            clean.main([*flags, *named])
        left = snapshot()
        assert {path: left.get(path) for path in foreign} == foreign


test_what_is_not_ours_stays_in_200_trees = pytest.mark.slow(
    settings(max_examples=200, **FIXED)(given(**DRAWN)(test_what_is_not_ours_stays_as_it_is.hypothesis.inner_test))
)


def test_what_is_ours_goes_where_nothing_else_is(folders: Iterator[Path]) -> None:
    with a_new_folder(next(folders)):
        what_we_make()
        clean.main(["--all"])
        left = {path for path, (kind, _) in snapshot().items() if kind == stat.S_IFREG}
        assert left == {
            *(f"runs/queued/{name}" for name in ("config.json", "error.json", LIST)),
            *(f"{run}/{name}" for run in ("elsewhere", "copied") for name in (*FINISHED, LIST)),
            "cache/samestep/oracle/lock",
        }, "a prepared run waits until it is named, and --runs looks below `runs` only"
        clean.main(["runs/queued", "elsewhere", "copied"])
        assert {path for path, (kind, _) in snapshot().items() if kind == stat.S_IFREG} == {
            "cache/samestep/oracle/lock"
        }
        assert not Path("runs/queued").exists()
