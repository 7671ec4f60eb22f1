"""What samestep keeps on this disk: run directories, comparisons, records, the oracle's curves, decoded data and calibrations.

Only what samestep wrote is found and removed, by the lists in `common/files/written.py`; no link is followed.
"""

import dataclasses
import re
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.access import why_closed
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.files.removing import discard, discard_all, find_written, walk
from samestep.common.files.written import read
from samestep.common.runtime.directory import COMPARISON, is_running, read_error
from samestep.common.runtime.parent.judging.cache import LIMIT_BYTES, CacheEntry, evict, find_cached, find_entries
from samestep.common.runtime.processes import how_to_end
from samestep.experiments.printing.text import size

KINDS = {
    "oracle": "curves of the oracle",
    "data": "decoded data sets",
    "machines": "calibrations of this machine",
    "runs": "run directories",
    "records": "records of scripts",
}
"""Name of a flag -> the kind of files that it removes."""
RUNS = Path("runs")
QUIET_SECONDS = 24 * 3600.0
"""How long a run without a result counts as possibly running, here or on another machine, after its last change."""
_REQUEST = {"framework", "strategy", "techniques"}


@dataclasses.dataclass(frozen=True)
class Store:
    """One kind of thing that samestep keeps.

    Attributes:
        name: A key of KINDS.
        note: A remark for the user before these files are removed.
        where: Its folder.
        find: Finds everything of the kind in the folder.
        free: Removes it, and returns what was removed.
    """

    name: str
    note: str
    where: Path
    find: Callable[[Path], list[CacheEntry]]
    free: Callable[[Path], list[CacheEntry]]

    @property
    def what(self) -> str:
        """The kind in words."""
        return KINDS[self.name]


def stores() -> list[Store]:
    """Returns everything that is kept, by kind."""
    from samestep.common.runtime.parent.judging.reference_curves import (
        curves_directory,  # here: --help imports no NumPy
    )
    from samestep.common.workload.data.dataset import cache_directory
    from samestep.experiments.advising.local_machine import path

    curves, data, machine = curves_directory(), cache_directory() / "data", path()
    limit = f"at most {size(LIMIT_BYTES)}; computed again when needed"
    return [
        Store("oracle", limit, curves, find_cached, lambda folder: evict(folder, 0)),
        Store("data", "decoded again when needed", data, *_files(r"[0-9a-f]{24}\.npz")),
        Store("machines", "`advise --machine here` measures again", machine.parent, *_files(re.escape(machine.name))),
        Store("runs", "with their results", RUNS, find_runs, _free_runs),
        Store("records", "with their reruns", RUNS, find_records, _free_records),
    ]


def _files(pattern: str) -> tuple[Callable[[Path], list[CacheEntry]], Callable[[Path], list[CacheEntry]]]:
    """Finds and frees the files of ours in a folder whose names match."""

    def find(folder: Path) -> list[CacheEntry]:
        ours = [found.items() for _, found in find_written(folder, depth=0)]
        files = [(name, status) for each in ours for name, status in each if re.fullmatch(pattern, name)]
        entries = [CacheEntry(folder / name, status.st_size, status.st_mtime) for name, status in files]
        return sorted(entries, key=lambda entry: entry.used)

    def free(folder: Path) -> list[CacheEntry]:
        found = find(folder)
        discard(folder)
        return found

    return find, free


# --- runs -------------------------------------------------------------------------------------------------------------


def find_runs(folder: Path) -> list[CacheEntry]:
    """Returns the run directories in and below a folder that samestep made there."""
    return find_entries(path for path, found in find_written(folder) if "config.json" in found)


def is_waiting(run: Path) -> bool:
    """Returns whether a run without a result was prepared but not started."""
    return bool(_read_config(run).get("prepare")) and read_error(run) is None and not any(run.glob("process-*.json"))


def why_kept(run: Path) -> str:
    """Says why a run directory is not removed unless it is named; "" if it is."""
    config = _read_config(run)
    if config.get("keep_state") and (run / "state.npz").exists():
        return "whose state was kept by --keep-state"
    if why_closed(run, writes=True):
        return "that you may not write into"
    if is_running(run):
        return "that is running"
    if (run / "result.json").exists():
        return ""
    if is_waiting(run):
        return "that was prepared and waits to be started"
    if time.time() - _changed(run) < QUIET_SECONDS:
        return "without a result that changed within the last day and may be running"
    return ""


def _changed(directory: Path) -> float:
    """Returns when any file in a directory was written last."""
    return max(path.lstat().st_mtime for path in directory.iterdir())


def find_unlisted(folder: Path) -> list[Path]:
    """Returns the run directories below a folder without a list of our files: of earlier versions, copied, or another user's."""
    found = []
    for path, files, descriptor in walk(folder):
        if "config.json" in files and read(descriptor) is None and _read_config(path):
            found.append(path)
    return found


def _read_config(run: Path) -> dict[str, object]:
    try:
        values = read_json(run / "config.json")
    except Unreadable:
        return {}
    return values if isinstance(values, dict) and set(values) >= _REQUEST else {}


def _free_runs(folder: Path) -> list[CacheEntry]:
    removed = [run for run in find_runs(folder) if not why_kept(run.path)]
    for run in removed:
        discard(run.path)
    for path, found in find_written(folder):
        if COMPARISON in found:
            _tidy(path)
    return removed


def _tidy(comparison: Path) -> None:
    """Removes the empty folders of a comparison; without any run, also its file, and why rows could not be run."""
    if not find_runs(comparison):
        discard_all(comparison)
        return
    for path, found in find_written(comparison, depth=0):
        discard(path, keep=[name for name in found if (path / name).is_file()])


# --- records ----------------------------------------------------------------------------------------------------------


def find_records(folder: Path) -> list[CacheEntry]:
    """Returns the records of scripts in and below a folder; the reruns in a record belong to it."""
    found = {path for path, names in find_written(folder) if _is_record(names)}
    return find_entries(sorted(path for path in found if found.isdisjoint(path.parents)))


def _is_record(names: Collection[str]) -> bool:
    from samestep.common.steps.record import rank_file  # here: --help imports no NumPy

    return rank_file(0) in names


def recent_records() -> int:
    """Returns the number of records that a script may still be writing."""
    return len(find_records(RUNS)) - len(_old_records(RUNS))


def _old_records(folder: Path) -> list[CacheEntry]:
    return [record for record in find_records(folder) if time.time() - _changed(record.path) >= QUIET_SECONDS]


def _free_records(folder: Path) -> list[CacheEntry]:
    """Removes all records but those that a script may still be writing."""
    removed = _old_records(folder)
    for record in removed:
        discard_all(record.path)
    return removed


# --- what is named ----------------------------------------------------------------------------------------------------


def check_named(directory: Path) -> Path:
    """Makes sure that a directory may be removed as a whole.

    Raises:
        ConfigError: It is neither a run nor a comparison that samestep made there, or it is being run.
    """
    _check_removable(directory)
    there = [found for _, found in find_written(directory, depth=0)]
    if not any({"config.json", COMPARISON} & found.keys() or _is_record(found) for found in there):
        why = "is a link" if directory.is_symlink() else "is not there" if not directory.exists() else ""
        if not why and _read_config(directory):
            whose = "an earlier version's, another user's or a copy"
            why = f"has no list of what samestep wrote there, as {whose}; remove it yourself"
        raise ConfigError(f"{directory} {why or 'is no run, comparison or record'}; nothing was removed.")
    for run in find_runs(directory):
        if is_running(run.path):
            raise ConfigError(f"{run.path} is running; nothing was removed: {how_to_end(run.path)}")
    return directory


def _check_removable(directory: Path) -> None:
    """Refuses a directory with a folder of ours from which the user may remove nothing."""
    ours = (
        path / name
        for path, found in find_written(directory)
        for name, status in found.items()
        if stat.S_ISDIR(status.st_mode)
    )
    for each in (directory, *ours):
        if why := why_closed(each, writes=True):
            raise ConfigError(f"{each} {why}; nothing was removed.")


def free_named(directory: Path) -> list[CacheEntry]:
    """Removes everything that samestep wrote into a run or a comparison, in any state; returns what was removed."""
    found = find_entries([directory])
    discard_all(directory)
    return found
