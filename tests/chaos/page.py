"""`docs/faults.md`, from what the cells of `tests.chaos` measured."""

import itertools
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from samestep.experiments.printing.text import github
from tests.chaos.cells import IMPORTING_SECONDS, SLACK_SECONDS, TIMEOUT_SECONDS, Cell, Outcome

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
PART = "## From outside, at any moment"
"""The part of the page that `tests.chaos.strikes` writes."""
FAULTS = {
    "SIGKILL": "A process is killed, as `kill -9` or the system does it.",
    "SIGSTOP": "A process is stopped, as a debugger does it. It exists and does nothing.",
    "cut_connection": "All TCP connections of a process are shut down.",
    "full_disk": "The file system of the run directory is filled to its last byte.",
    "fork_server_killed": "The process that forked the run's processes is killed.",
    "short_memory": "The run's control group is given little more memory than it uses, and a process wants more.",
    "nan_gradient": "One example of a batch holds a NaN, so the loss and the gradient do as well. Token ids cannot.",
    "mismatched_shapes": "A process is given a narrower model than the others. Where one process alone knows the model, it is "
    "given the state of a narrower one to start from.",
    "corrupted_state": "One bit of the state in `--start-from` is wrong.",
    "rank_twice": "A process of the run is started twice.",
    "SIGINT": "The command is sent SIGINT, as by Ctrl-C.",
    "SIGTERM": "The command is sent SIGTERM, as by `docker stop` or a scheduler.",
    "SIGHUP": "The command is sent SIGHUP, as by a terminal that is closed.",
    "SIGQUIT": "The command is sent SIGQUIT, as by Ctrl-\\\\ in a terminal.",
    "gap": "The whole run and its command are stopped for longer than the timeout and then continue, as when a lid is closed.",
}
SHOWN = ("torch:ddp", "tf:multi_worker_mirrored")
"""The rows whose messages stand on the page."""
INTRODUCTION = """# What goes wrong, and what you read then

Each fault below struck real runs of every strategy, at a known moment inside the process. The models were small. The
timeout was {timeout:g} s, or {importing:g} s for `torch:deepspeed`, whose workers import DeepSpeed first. The clock runs
from the fault until the command has stopped every process and printed its message. Every run must meet three
requirements: it ends within the timeout plus {slack:g} s, its message names the culprit, and no process is left. {good}
of {all} runs meet them.

    python -m tests.chaos                             # all of them, in about two hours; a second call goes on
    python -m tests.chaos torch:ddp SIGKILL           # those of some rows and faults

Short memory and a full disk are real: a control group with a limit, and a file system of 4 MiB. Both need root. `goes on` means
that the run is not supposed to end.
"""


Taken = Sequence[tuple[Cell, Outcome]]


def write_page(taken: Taken) -> None:
    """Writes the page, from every cell that has been taken."""
    good = sum(outcome.is_good for _, outcome in taken)
    seconds = {"timeout": TIMEOUT_SECONDS, "importing": IMPORTING_SECONDS, "slack": SLACK_SECONDS}
    numbers = {**seconds, "good": f"{good:,}", "all": f"{len(taken):,}"}
    parts = [
        INTRODUCTION.format(**numbers),
        "## By fault\n\n" + _table(taken, ("fault", "whom", "when"), _by_fault),
        "## By strategy\n\n" + _table(taken, ("strategy",), lambda cell: (f"`{cell.row}`",)),
        _exceptions(taken),
        kept_part(),
        "## What each fault is, and what you read\n\n" + "\n\n".join(_messages(taken)),
    ]
    PAGE.write_text("\n\n".join(part.strip() for part in parts if part) + "\n")


def kept_part() -> str:
    """What the page has of `tests.chaos.strikes`, as it is."""
    _, found, after = PAGE.read_text().partition(PART)
    return found + re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]


def _by_fault(cell: Cell) -> tuple[str, ...]:
    whom = (
        "the command" if cell.role == "command" else "a process" if cell.fault != "fork_server_killed" else "its server"
    )
    return f"`{cell.fault}`", whom, cell.moment or "before the start"


def _table(taken: Taken, headers: Sequence[str], key: Callable[[Cell], tuple[str, ...]]) -> str:
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for cell, outcome in taken:
        groups.setdefault(key(cell), []).append(outcome)
    rows = [[*names, *_summary(outcomes)] for names, outcomes in groups.items()]
    return github([*headers, "runs", "seconds, p50", "seconds, most", "culprit named", "orphans"], rows)


def _summary(outcomes: Sequence[Outcome]) -> list[str]:
    seconds = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
    middle, most = (f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("goes on", "")
    right = sum(outcome.is_right for outcome in outcomes)
    return [
        str(len(outcomes)),
        middle,
        most,
        f"{right} of {len(outcomes)}",
        str(sum(each.orphans for each in outcomes)),
    ]


def _exceptions(taken: Taken) -> str:
    """Runs that went on, or took longer, with the reason; and those that are not as wanted."""
    excused = [(cell, outcome) for cell, outcome in taken if outcome.excuse]
    bad = [(cell, outcome) for cell, outcome in taken if not outcome.is_good]
    lines = []
    for (row, excuse), group in itertools.groupby(excused, key=lambda pair: (pair[0].row, pair[1].excuse)):
        count = len(list(group))
        lines.append(f"* `{row}`: {count} run{'s' if count > 1 else ''} ({excuse}).")
    lines += [
        f"* NOT as wanted: {_spell(cell)}: {_seconds(outcome)} `{outcome.said.partition(chr(10))[0][:200]}`"
        for cell, outcome in bad
    ]
    return "## Exceptions\n\n" + ("\n".join(lines) or "None.")


def _spell(cell: Cell) -> str:
    return " ".join(filter(None, (f"`{cell.row}`", cell.fault, cell.role, cell.moment)))


def _seconds(outcome: Outcome) -> str:
    return "" if outcome.seconds is None else f"{outcome.seconds:.1f} s,"


def _messages(taken: Taken) -> Iterable[str]:
    for fault, meaning in FAULTS.items():
        shown = [
            pair
            for pair in taken
            if pair[0].fault == fault and pair[0].row in SHOWN and pair[0].moment in ("train", "")
        ]
        said = {
            cell.row: outcome.said for cell, outcome in reversed(shown) if cell.role != "command" or fault in COMMANDS
        }
        if said:
            quoted = "\n".join(
                f"    {line[:300]}" for text in dict.fromkeys(said.values()) for line in text.splitlines()
            )
            yield f"### `{fault}`\n\n{meaning}\n\n{quoted}"


COMMANDS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "gap")
"""Faults of the command alone."""
