"""The table of faults: what happens to a run when something goes wrong, measured for every row of both catalogues.

`python -m tests.chaos [torch:ddp ... SIGKILL cut_connection ...]` takes the cells of the named rows and faults, or
all. Each good cell leaves a file in `build/faults`, and the next call goes on with the others. At the end, and with
`--page` at once, `docs/faults.md` is written.

Faults strike inside real runs of small models, at a moment that the process itself knows (`worker.py`). A fault is
detected when the command has stopped everything and says what happened. Needs root, for a small disk and short memory.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import Unavailable
from samestep.common.runtime.parent.launcher import Launcher
from tests.chaos.cells import STORE, Cell, Outcome, cells, read, rows
from tests.chaos.page import write_page
from tests.chaos.rooms import memory_group, own_mounts
from tests.chaos.run import take


def main(arguments: Sequence[str]) -> None:
    """Takes what is chosen and not good yet, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", help="rows and faults; all, unless given")
    parser.add_argument("--page", action="store_true", help="take nothing, only write docs/faults.md")
    given = parser.parse_args(arguments)
    table = {row: list(cells(row)) for row in rows()}
    chosen_rows = [word for word in given.chosen if word in table] or list(table)
    faults = [word for word in given.chosen if word not in table]
    todo = [cell for row in chosen_rows for cell in table[row] if not faults or cell.fault in faults]
    if not given.page:
        STORE.mkdir(parents=True, exist_ok=True)
        own_mounts()
        memory_group()  # entered before anything is started
        with Launcher(worker="tests.chaos.worker") as launcher:
            for cell in todo:
                _take_and_store(cell, launcher)
    taken = [(cell, read(cell)) for each in table.values() for cell in each if cell.stored.exists()]
    write_page(taken)


def _take_and_store(cell: Cell, launcher: Launcher) -> None:
    if cell.stored.exists() and read(cell).is_good:
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        try:
            outcome = take(cell, launcher, Path(scratch))
        except Unavailable as error:
            print(f"{cell}: {error}", flush=True)
            return
        except (subprocess.TimeoutExpired, RuntimeError) as error:
            outcome = Outcome(None, False, 0, f"nothing: {error}")
    cell.stored.write_text(json.dumps(dataclasses.asdict(outcome)))
    seconds = "" if outcome.seconds is None else f"{outcome.seconds:.1f} s"
    mark = "" if outcome.is_good else "BAD "
    print(f"{mark}{cell.row} {cell.fault} {cell.role} {cell.moment}: {seconds} {outcome.said[:300]!r}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
