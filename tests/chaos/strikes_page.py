"""The part of `docs/faults.md` on strikes from outside, from what `tests.chaos.strikes` measured."""

import re
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samestep.experiments.printing.text import github
from tests.chaos.cells import SLACK_SECONDS
from tests.chaos.page import PAGE, PART, SHOWN

if TYPE_CHECKING:
    from tests.chaos.strikes import Struck

WHOM = {
    "command": "the command",
    "server": "its server",
    "keeper": "its server's keeper",
    "maker": "its server's network maker",
}
TEXT = """{heading}

These faults strike a real command from outside, from the moment on at which it handles signals. So they also strike while
the fork server imports its framework and no worker exists yet; `start` is the time before there is a server. Two signals
follow each other within {gap:.1g} s at most. A command that is killed cannot print a message, so in that case the clock
runs until its last process is gone. The requirements are those above.

    python -m tests.chaos.strikes --random {count} --seed {seed}

{known_good} of {known} strikes at known moments, on `torch:ddp` and `tf:multi_worker_mirrored`, meet the requirements. So
do {good} of {count} strikes at random moments, on {rows} strategies with their variants. {load}

### At known moments

{known_table}

### At random moments

{random_table}

{exceptions}

### What you read then

{messages}"""


def write_part(taken: "Sequence[Struck]", seed: int) -> None:
    """Writes the part; the rest of the page stays.

    Args:
        taken: Every strike that was taken.
        seed: Of the random ones.
    """
    known = [each for each in taken if not each.strike.is_random]
    drawn = [each for each in taken if each.strike.is_random]
    loads = [each.load for each in taken] or [0.0]
    part = TEXT.format(
        heading=PART,
        gap=max([each.strike.gap_seconds for each in drawn], default=0.1),
        count=len(drawn),
        seed=seed,
        known_good=sum(each.is_good for each in known),
        known=len(known),
        good=sum(each.is_good for each in drawn),
        rows=len({each.strike.row for each in drawn}),
        load=f"Meanwhile {min(loads):.0f} to {max(loads):.0f} processes wanted a core of this machine.",
        known_table=_table(known),
        random_table=_table(drawn),
        exceptions=_exceptions(taken),
        messages=_messages(known),
    )
    part = re.sub(r"\n{3,}", "\n\n", part)
    before, _, after = PAGE.read_text().partition(PART)
    rest = re.search(r"^## ", after, re.MULTILINE)
    middle = after[rest.start() :] if rest else ""
    if not after:
        before, found, end = before.partition("## What each fault is")
        middle = found + end
    PAGE.write_text(f"{before.rstrip()}\n\n{part.strip()}\n\n{middle}")


def _table(taken: "Sequence[Struck]") -> str:
    groups: dict[tuple[str, str, str], list[Struck]] = {}
    for each in sorted(taken, key=lambda each: (each.fault, [*WHOM, each.hit].index(each.hit), each.phase)):
        groups.setdefault((f"`{each.fault}`", WHOM.get(each.hit, "a process"), each.phase), []).append(each)
    rows = [[*names, *_summary(each)] for names, each in groups.items()]
    headers = ["fault", "whom", "when", "runs", "seconds, p50", "seconds, most", "culprit named", "orphans"]
    return github(headers, rows)


def _summary(taken: "Sequence[Struck]") -> list[str]:
    seconds = [each.seconds for each in taken if not each.excuse]
    times = [f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}"] if seconds else ["goes on", ""]
    right = sum(each.is_right for each in taken)
    return [str(len(taken)), *times, f"{right} of {len(taken)}", str(sum(each.orphans for each in taken))]


def _exceptions(taken: "Sequence[Struck]") -> str:
    """Runs that went on, and what is not as wanted."""
    excuses: dict[tuple[str, str], int] = {}
    for each in taken:
        if each.excuse:
            key = (each.strike.row, each.excuse)
            excuses[key] = excuses.get(key, 0) + 1
    lines = [f"* `{row}`: {n} run{'s' if n > 1 else ''} ({excuse})." for (row, excuse), n in excuses.items()]
    lines += [
        f"* NOT as wanted: `{each.strike.row}` {each.fault} {each.hit} {each.phase}: {each.seconds:.1f} s of "
        f"{each.timeout_seconds + SLACK_SECONDS:g} s, {each.orphans} left, `{each.said.partition(chr(10))[0][:200]}`"
        for each in taken
        if not each.is_good
    ]
    return "\n".join(lines)


def _messages(taken: "Sequence[Struck]") -> str:
    said = dict.fromkeys(each.said for each in taken if each.strike.row == SHOWN[0])
    return "\n".join(f"    {line}" for line in said if line)
