"""Shows what samestep keeps on this disk, and removes what the flags name: `samestep clean --oracle --runs`."""

import contextlib
import dataclasses
import datetime
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from samestep.common.files import Unreadable, read_json
from samestep.common.runtime.parent.cache import LIMIT_BYTES, Entry, evict, find_entries
from samestep.experiments.arguments import run_command
from samestep.experiments.parser import Parser
from samestep.experiments.text import github, size

KINDS = {
    "oracle": "curves of the oracle",
    "data": "decoded data sets",
    "machines": "calibrations of this machine",
    "runs": "run directories",
}
"""What is kept, by the name of the flag that frees it."""
RUNS = Path("runs")
QUIET_SECONDS = 24 * 3600.0
"""A run without a result may still be going on, here or on another machine, until nothing in it changes for so long."""


@dataclasses.dataclass(frozen=True)
class Store:
    """One kind of thing that is kept.

    Attributes:
        name: A key of KINDS.
        note: What to know before it is freed.
        where: Its folder.
        find: Everything of the kind in the folder.
        free: Removes it, and returns what was removed.
    """

    name: str
    note: str
    where: Path
    find: Callable[[Path], list[Entry]]
    free: Callable[[Path], list[Entry]]

    @property
    def what(self) -> str:
        """The kind in words."""
        return KINDS[self.name]


def main(arguments: Sequence[str]) -> int:
    """Frees what the flags name, then prints what there is."""
    parser = Parser(prog="samestep clean", allow_abbrev=False, description=__doc__)
    for name, what in KINDS.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"remove the {what}")
    parser.add_argument("--all", action="store_true", help="remove all of them")
    chosen = vars(parser.parse_args(arguments))
    stores = _stores()
    for store in stores:
        if chosen["all"] or chosen[store.name]:
            freed = store.free(store.where)
            print(f"Freed {size(_total(freed))} ({store.what}: {len(freed)}).")
    print(f"{_table(stores)}\n")
    for store in stores:
        print(f"{store.what}: {store.where} ({store.note})")
    if kept := [reason for run in find_runs(RUNS) if (reason := why_kept(run.path))]:
        counts = ", ".join(f"{kept.count(reason)} {reason}" for reason in dict.fromkeys(kept))
        print(f"--runs leaves alone: {counts}; remove such a directory by hand if you do not need it.")
    return 0


def _stores() -> list[Store]:
    from samestep.common.runtime.parent.curves import curves_directory  # here: --help imports no NumPy
    from samestep.common.workload.data.dataset import cache_directory
    from samestep.experiments.here import path

    curves, data = curves_directory(), cache_directory() / "data"
    limit = f"at most {size(LIMIT_BYTES)}; what is needed is computed again"
    return [
        Store("oracle", limit, curves, _find_curves, lambda folder: evict(folder, 0)),
        Store("data", "what is needed is decoded again", data, _find("*.npz"), _free("*.npz")),
        Store("machines", "--machine here measures again", path().parent, _find("*.toml"), _free("*.toml")),
        Store("runs", "with their results", RUNS, find_runs, _free_runs),
    ]


def _find_curves(folder: Path) -> list[Entry]:
    return find_entries({path.parent.parent for path in folder.glob("*/*/config.json")})


def _find(pattern: str) -> Callable[[Path], list[Entry]]:
    """Finds the files of a folder whose names match."""
    return lambda folder: find_entries(folder.glob(pattern))


def _free(pattern: str) -> Callable[[Path], list[Entry]]:
    """Removes them."""

    def free(folder: Path) -> list[Entry]:
        found = _find(pattern)(folder)
        for entry in found:
            entry.path.unlink(missing_ok=True)
        return found

    return free


def _table(stores: Sequence[Store]) -> str:
    rows = []
    for store in stores:
        found = store.find(store.where)
        oldest = datetime.date.fromtimestamp(found[0].used).isoformat() if found else ""
        rows.append([store.what, str(len(found)), size(_total(found)), oldest, f"--{store.name}"])
    return github(["kept", "how many", "size", "oldest", "freed by"], rows)


def _total(entries: Sequence[Entry]) -> int:
    return sum(entry.bytes for entry in entries)


def find_runs(folder: Path) -> list[Entry]:
    """The run directories below a folder, at any depth: they hold our `config.json` and how the run ended."""
    found = [path.parent for path in folder.rglob("config.json") if _read_config(path.parent)]
    return find_entries(run for run in found if any((run / name).exists() for name in ("result.json", "error.json")))


def why_kept(run: Path) -> str:
    """Why a run directory is not removed; "" if it is."""
    if _read_config(run).get("keep_state") and (run / "state.npz").exists():
        return "whose state was kept by --keep-state"
    changed = max(path.lstat().st_mtime for path in run.iterdir())
    if not (run / "result.json").exists() and time.time() - changed < QUIET_SECONDS:
        return "without a result that changed within the last day and may be running"
    return ""


def _read_config(run: Path) -> dict[str, object]:
    try:
        values = read_json(run / "config.json")
    except Unreadable:
        return {}
    return values if isinstance(values, dict) and {"framework", "strategy", "techniques"} <= set(values) else {}


def _free_runs(folder: Path) -> list[Entry]:
    from samestep.common.runtime.directory import discard_run  # here, like the next one: --help imports no NumPy
    from samestep.experiments.comparison_file import NAME

    removed = [run for run in find_runs(folder) if not why_kept(run.path)]
    for run in removed:
        discard_run(run.path)
    for file in [*folder.rglob(NAME)]:
        _tidy(file)
    return removed


def _tidy(file: Path) -> None:
    """Removes the empty folders of a comparison; without any run, also its file, and why rows could not be run."""
    directory = file.parent
    if not any(directory.rglob("config.json")):
        for left in (file, *directory.glob("*/*/error.json")):
            with contextlib.suppress(OSError):  # a folder of that name
                left.unlink()
    folders = [path for path in directory.rglob("*") if path.is_dir()]
    for folder in (*sorted(folders, reverse=True), directory):
        with contextlib.suppress(OSError):  # what someone else put there stays
            folder.rmdir()


if __name__ == "__main__":
    run_command(main)
