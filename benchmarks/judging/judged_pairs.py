"""Judges pairs of recorded scripts. Verdicts are kept, and the next call continues from there."""

import argparse
import collections
import functools
import itertools
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.judging.forked_scripts import begin
from samestep.common.errors import SamestepError

Pair = tuple[str | int | bool, ...]


def judge_pairs(
    about: str | None,
    pairs: Iterable[Pair],
    count: int,
    judged: Callable[[Path, Pair], dict],
    a_of: Callable[[Pair], Pair],
    show: Callable[[list[dict]], None],
) -> None:
    """Judges as many pairs as the command line asks for, and prints the results.

    Args:
        about: The purpose of the command.
        pairs: All pairs.
        count: The default number of pairs to judge.
        judged: Judges a pair, given the folder of the records; returns the result to keep.
        a_of: Returns the part of a pair that determines its first record. Pairs that share it are judged in sequence.
        show: Prints a table of the results.
    """
    parser = options(about)
    parser.add_argument("--pairs", type=int, default=count)
    given = parser.parse_args()
    judge_given(given, itertools.islice(pairs, given.pairs), judged, a_of, show)


def options(about: str | None) -> argparse.ArgumentParser:
    """Returns the parser with the options of every command that judges pairs.

    Args:
        about: The purpose of the command.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("runs", Path(sys.argv[0]).stem))
    parser.add_argument("--jobs", type=int, default=1, help="how many pairs are judged at the same time (default: 1)")
    return parser


def judge_given(
    given: argparse.Namespace,
    pairs: Iterable[Pair],
    judged: Callable[[Path, Pair], dict],
    a_of: Callable[[Pair], Pair],
    show: Callable[[list[dict]], None],
) -> None:
    """Judges the pairs that have not been judged, and prints all results.

    Args:
        given: The options of the command line.
        pairs: The pairs.
        judged: See `judge_pairs`.
        a_of: See `judge_pairs`.
        show: Prints a table of the results.
    """
    begin(given.store)
    log = given.store / f"{Path(sys.argv[0]).stem}.jsonl"
    done = {tuple(row["pair"]) for row in _rows(log)}
    groups: dict[Pair, list[Pair]] = collections.defaultdict(list)
    for pair in pairs:
        if pair not in done:
            groups[a_of(pair)].append(pair)
    judge_all = functools.partial(_judge_group, judged, given.store, log)
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("fork")) as pool:
        collections.deque(pool.map(judge_all, groups.values()), maxlen=0)
    show(_rows(log))


def _judge_group(judged: Callable[[Path, Pair], dict], store: Path, log: Path, pairs: Sequence[Pair]) -> None:
    for pair in pairs:
        try:
            row = {"pair": pair, **judged(store, pair)}
        except SamestepError as error:
            print(f"{pair}: {error}", file=sys.stderr)
            continue
        with log.open("a") as file:  # a line is one write, so lines of several processes do not interleave
            file.write(json.dumps(row) + "\n")
        print(row, file=sys.stderr, flush=True)


def _rows(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
