"""Show what samestep keeps on this disk, and remove what you name: `samestep clean --oracle --runs`, `samestep clean DIR`.

Only files that samestep wrote and listed are removed; everything else in a directory stays, and no link is followed. --runs
does not touch runs that may still be needed or running, such as a prepared run that waits in a queue; DIR is always removed.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path

from samestep.common.runtime.parent.judging.cache import CacheEntry
from samestep.experiments.cleaning import disk_usage
from samestep.experiments.cleaning.disk_usage import Store
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.text import fill, github, size


def main(arguments: Sequence[str]) -> int:
    """Removes what is named, then prints what is left.

    Raises:
        ConfigError: samestep did not write a directory that was named; nothing was removed.
    """
    parser = Parser(prog="samestep clean", description=__doc__)
    parser.add_argument("directories", nargs="*", metavar="DIR", help="a run, a comparison or a record to remove")
    for name, what in disk_usage.KINDS.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"remove the {what}")
    parser.add_argument("--all", action="store_true", help="remove all of them")
    chosen = vars(parser.parse_args(arguments))
    for directory in [disk_usage.check_named(Path(each)) for each in chosen["directories"]]:
        print(f"Freed {size(_total(disk_usage.free_named(directory)))} ({directory}).")
    stores = disk_usage.stores()
    for store in stores:
        if chosen["all"] or chosen[store.name]:
            freed = store.free(store.where)
            print(f"Freed {size(_total(freed))} ({store.what}: {len(freed)}).")
    print(f"{_table(stores)}\n")
    for store in stores:
        is_link = "; it is a link, and nothing in it is touched" if store.where.is_symlink() else ""
        print(fill(f"{store.what}: {store.where} ({store.note}{is_link})", indent="  "))
    print("".join(f"{line}\n" for line in _left_alone()), end="")
    return 0


def _left_alone() -> list[str]:
    """Returns what --runs does not remove, a line each."""
    lines = []
    if reasons := [
        reason for run in disk_usage.find_runs(disk_usage.RUNS) if (reason := disk_usage.why_kept(run.path))
    ]:
        counts = ", ".join(f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons))
        lines.append(f"--runs leaves alone: {counts}; `samestep clean DIR` removes one.")
    if recent := disk_usage.recent_records():
        lines.append(
            f"--records leaves alone: {recent} that changed within the last day and may be being written; `samestep clean DIR` "
            "removes one."
        )
    if unlisted := disk_usage.find_unlisted(disk_usage.RUNS):
        count = f"{len(unlisted)} without a list of what samestep wrote, because an earlier version made them or they are copies"
        lines.append(f"--runs leaves alone: {count} ({unlisted[0]}); remove such a directory yourself.")
    return lines


def _table(stores: Sequence[Store]) -> str:
    rows = []
    for store in stores:
        found = store.find(store.where)
        oldest = datetime.date.fromtimestamp(found[0].used).isoformat() if found else ""
        rows.append([store.what, str(len(found)), size(_total(found)), oldest, f"--{store.name}"])
    return github(["kept", "how many", "size", "oldest", "freed by"], rows)


def _total(entries: Sequence[CacheEntry]) -> int:
    return sum(entry.bytes for entry in entries)


if __name__ == "__main__":
    run_command(main)
