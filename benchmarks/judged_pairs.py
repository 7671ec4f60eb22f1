"""Judges pairs of recorded scripts, one after the other. What is judged is kept, and the next call goes on from there."""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.forked_scripts import begin
from samestep.common.errors import SamestepError

Pair = tuple[str | int | bool, ...]


def judge_pairs(
    about: str | None,
    pairs: Iterable[Pair],
    count: int,
    judged: Callable[[Path, Pair], dict],
    show: Callable[[list[dict]], None],
) -> None:
    """Judges as many pairs as the command line asks for, and prints what came out.

    Args:
        about: What the command is for.
        pairs: All of them.
        count: How many are judged, unless the command line says it.
        judged: Judges a pair, with the records in a folder; returns what is kept of it.
        show: Prints a table of what came out.
    """
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=count)
    parser.add_argument("--store", type=Path, default=Path("runs", name))
    given = parser.parse_args()
    begin(given.store)
    log = given.store / f"{name}.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {tuple(row["pair"]) for row in rows}
    for pair in itertools.islice(pairs, given.pairs):
        if pair in done:
            continue
        try:
            rows.append({"pair": pair, **judged(given.store, pair)})
        except SamestepError as error:
            print(f"{pair}: {error}", file=sys.stderr)
            continue
        with log.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(f"{len(rows)}: {rows[-1]}", file=sys.stderr, flush=True)
    show(rows)
