"""Signals that strike a real command from outside: at known moments that no worker sees, and at random ones.

`python -m tests.chaos.strikes [--random 20] [--seed 1] [--store FILE]` strikes the import and the processes around the
fork server, sends two signals in a row, and then strikes so many seeded random moments, over all rows. Each good outcome is
a line of the store, and the next call goes on with the others. At the end, and with `--page` at once, its part of
`docs/faults.md` is written. A command is struck from the moment on at which it handles signals.
"""

import argparse
import dataclasses
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.cells import COMMAND, COMMAND_FAULTS, PROCESS_FAULTS, SLACK_SECONDS, STORE, rows
from tests.chaos.page import SHOWN
from tests.chaos.strikes_page import write_part
from tests.chaos.struck import strike

MEMBERS = ("server", "keeper", "maker")
DOUBLES = ("SIGINT SIGINT", "SIGTERM SIGINT", "SIGHUP SIGTERM", "SIGINT SIGTERM")
MOMENTS = ("import", "train")
SPANS_SECONDS = {"random": 10.0, "random, in training": 3.0}
"""Random moments are drawn from so long: since the command handles signals, and since the end of its first window of steps."""
MOST_GAP_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Strike:
    """What happens to whom, and when.

    Attributes:
        row: A strategy with its options.
        who: "command", "server", "keeper", "maker", or "process": one of the run.
        fault: The names of one signal or two.
        moment: One of MOMENTS or of SPANS_SECONDS.
        seconds: How long after that, if it is random.
        gap_seconds: Between two signals.
        pick: Which process of the run, as a share of them.
    """

    row: str
    who: str
    fault: str
    moment: str
    seconds: float = 0.0
    gap_seconds: float = 0.1
    pick: float = 0.0

    @property
    def is_random(self) -> bool:
        """Whether its moment was drawn."""
        return self.moment in SPANS_SECONDS


@dataclasses.dataclass(frozen=True)
class Struck:
    """What became of it.

    Attributes:
        strike: What was drawn.
        hit: The role that was struck: another one than drawn where that one did not exist yet.
        fault: What it was sent.
        phase: Where the run was.
        seconds: From the signal to the end of the command, and of all processes if it was killed.
        is_right: Whether the culprit was named, and the exit code fits.
        orphans: How many processes were left a second later.
        said: What the user read.
        excuse: What is permitted where the run went on.
        timeout_seconds: Of the run.
        load: How many processes wanted a core in the minute before.
    """

    strike: Strike
    hit: str
    fault: str
    phase: str
    seconds: float
    is_right: bool
    orphans: int
    said: str
    excuse: str
    timeout_seconds: float
    load: float

    @property
    def is_good(self) -> bool:
        """Whether it is as wanted."""
        in_time = self.seconds <= self.timeout_seconds + SLACK_SECONDS or bool(self.excuse)
        return self.is_right and in_time and self.orphans == 0


def known_strikes() -> Iterator[Strike]:
    """Those at known moments, of one row of each framework: before there is a worker, its row does not matter."""
    for row, moment in itertools.product(SHOWN, MOMENTS):
        for who, fault in itertools.product(MEMBERS, PROCESS_FAULTS):
            yield Strike(row, who, fault, moment)
        for fault in (*(COMMAND_FAULTS if moment == "import" else ()), *DOUBLES):
            yield Strike(row, COMMAND, fault, moment)


def random_strikes(count: int, seed: int) -> Iterator[Strike]:
    """Draws strikes; each row has its turn.

    Args:
        count: How many.
        seed: Of the draw; more of the same seed begin with the same ones.
    """
    rng = random.Random(seed)
    turns: list[str] = []
    for _ in range(count):
        turns = turns or rng.sample(rows(), len(rows()))
        who = rng.choice((COMMAND, *MEMBERS, "process", "process"))
        fault = rng.choice((*COMMAND_FAULTS, *DOUBLES) if who == COMMAND else PROCESS_FAULTS)
        moment = rng.choice(list(SPANS_SECONDS))
        most = (SPANS_SECONDS[moment], MOST_GAP_SECONDS, 1.0)
        yield Strike(turns.pop(), who, fault, moment, *(round(rng.uniform(0, each), 3) for each in most))


def read_store(store: Path) -> dict[Strike, Struck]:
    """The last outcome of each strike."""
    lines = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    taken = [Struck(**{**line, "strike": Strike(**line["strike"])}) for line in lines]
    return {struck.strike: struck for struck in taken}


def main(arguments: Sequence[str]) -> None:
    """Takes what is not good yet, and writes the part of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=20, help="how many random moments")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--store", type=Path, default=STORE / "strikes.jsonl", help="where the outcomes are kept")
    parser.add_argument("--page", action="store_true", help="strike nothing, only write docs/faults.md")
    given = parser.parse_args(arguments)
    chosen = [*known_strikes(), *random_strikes(given.random, given.seed)]
    given.store.parent.mkdir(parents=True, exist_ok=True)
    taken = read_store(given.store)
    for each in chosen if not given.page else ():
        if each in taken and taken[each].is_good:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            try:
                found = strike(each, Path(scratch))
            except (subprocess.TimeoutExpired, RuntimeError) as error:
                print(f"BAD {dataclasses.astuple(each)}: {error}", flush=True)
                continue
        taken[each] = Struck(each, load=os.getloadavg()[0], **found)
        with given.store.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(taken[each])) + "\n")
        mark = "" if taken[each].is_good else "BAD "
        print(f"{mark}{dataclasses.astuple(each)}: {json.dumps({**found, 'said': found['said'][:300]})}", flush=True)
    write_part([taken[each] for each in chosen if each in taken], given.seed)


if __name__ == "__main__":
    main(sys.argv[1:])
