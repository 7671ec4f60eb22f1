"""Measures the diagnosis: how many known mistakes are caught and named, and how many healthy runs are wrongly named.

`python -m benchmarks.mistakes` makes every known mistake in its own cell, in the same cell with other workloads, and together
with everything else that a step can have; with both optimizers, both dtypes, two and four devices, from the start and continued.
A mistake matters if a step is more than 100 times as far from the right one as rounding explains. Then the verdict has to catch
it and the diagnosis has to name it. A row of the table is a mistake: in how many cells it matters, is caught, is named, and is
the only one named. A second mistake is named if it leads to the same step, so mistakes that are the same function would never be
named alone. Below are the cells in which a mistake is not caught, not named, or named wrongly.

Then the diagnosis is asked about every step of healthy runs of the real programs, independent of their verdict. It names nothing
if rounding explains a deviation, nor a mistake that leaves more than a tenth of it. So the table has the distance of the farthest
step from the oracle's, in multiples of what rounding explains, and the least share that a mistake would leave.

`python -m benchmarks.mistakes clip_forgotten --healthy 0` makes only some mistakes, and takes no healthy runs.
"""

import argparse
import itertools
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.mistakes.grid import MISTAKES, Outcome, cells, make
from benchmarks.mistakes.healthy import Answer, ask_all, requests
from samestep.common.errors import unknown
from samestep.experiments.printing.text import github

HEALTHY = 1000
OF_FLOAT64 = "float64"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table of mistakes and the table of healthy runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mistakes", nargs="*", metavar="MISTAKE", help="which to make (default: all)")
    parser.add_argument("--healthy", type=int, default=HEALTHY, help="how many healthy runs to ask about")
    given = parser.parse_args(arguments)
    for name in given.mistakes:
        if name not in MISTAKES:
            parser.error(str(unknown("mistake", name, MISTAKES)))
    cores, started = sorted(os.sched_getaffinity(0)), time.monotonic()
    chosen = [cell for cell in cells() if cell.mistake in (given.mistakes or MISTAKES)]
    with ProcessPoolExecutor(len(cores)) as pool:
        made = [outcome for outcome in pool.map(make, chosen, chunksize=8) if outcome is not None]
    print(table_of_mistakes(made), flush=True)
    if given.healthy:
        asked = list(itertools.islice(requests(), given.healthy))
        shares = [asked[number :: len(cores)] for number in range(len(cores))]
        with ProcessPoolExecutor(len(cores)) as pool:
            print("\n" + table_of_healthy([answer for part in pool.map(ask_all, cores, shares) for answer in part]))
    print(f"\n{(time.monotonic() - started) / 60:.0f} minutes on {len(cores)} cores")


def table_of_mistakes(made: Sequence[Outcome]) -> str:
    """Returns a table with the outcomes of each mistake and their totals, and the cells that went wrong.

    Args:
        made: The outcome in every cell in which a mistake could be made.
    """
    rows, matters = [], [outcome for outcome in made if outcome.matters]
    for name in dict.fromkeys(outcome.cell.mistake for outcome in made):
        own = [outcome for outcome in matters if outcome.cell.mistake == name]
        rows.append([name, *map(str, _counts(own)), f"{min((o.farthest for o in own), default=0):.0e}"])
    rows.append([f"all {len(rows)}", *map(str, _counts(matters)), ""])
    headers = ["mistake", "matters", "caught", "named", "alone", "least distance"]
    alone = {outcome.cell.mistake for outcome in matters if outcome.named == (outcome.cell.mistake,)}
    never = [name for name, *_ in rows[:-1] if name not in alone]
    float32 = sum(not outcome.is_caught for outcome in matters if outcome.cell.dtype != OF_FLOAT64)
    lines = [
        github(headers, rows),
        "",
        f"named alone in no cell, so perhaps one function with another one: {', '.join(never) or 'none'}",
        f"not caught: {sum(not o.is_caught for o in matters)}, of which in float32: {float32}",
        f"not named, or by another name only: {sum(o.cell.mistake not in o.named for o in matters)}",
        *(f"    {line}" for line in map(_complaint, matters) if line),
    ]
    return "\n".join(lines)


def _counts(outcomes: Sequence[Outcome]) -> tuple[int, int, int, int]:
    """Returns in how many cells a mistake matters, is caught, is named, and is named alone."""
    named = [outcome for outcome in outcomes if outcome.cell.mistake in outcome.named]
    caught = sum(outcome.is_caught for outcome in outcomes)
    return len(outcomes), caught, len(named), sum(len(outcome.named) == 1 for outcome in named)


def _complaint(outcome: Outcome) -> str:
    """Returns what went wrong in a cell; "" if nothing did."""
    name = outcome.cell.mistake
    if name in outcome.named and outcome.is_caught:
        return ""
    called = "" if name in outcome.named else f", called {' and '.join(outcome.named) or 'nothing'}"
    return f"{name} in {outcome.cell}: {'caught' if outcome.is_caught else 'NOT caught'}{called}"


def table_of_healthy(answers: Sequence[Answer]) -> str:
    """Returns a table of healthy runs by framework and arithmetic: how many were named, and how close they came to it.

    Args:
        answers: The answers of every run.
    """
    rows = []
    for name in [*sorted({_group(answer) for answer in answers}), ""]:
        own = [answer for answer in answers if name in ("", _group(answer))]
        off = sum(answer.distance > 1 for answer in own)
        rows.append([name or "all", str(len(own)), str(sum(bool(answer.named) for answer in own)), str(off)])
        rows[-1] += [f"{max(a.distance for a in own):.1g}", f"{min(a.left for a in own):.2f}"]
    headers = ["healthy runs", "runs", "named", "off by more than rounding", "largest distance", "a mistake leaves"]
    named = [f"    {a.cell} {a.workload} {a.dtype}: {' and '.join(a.named)}" for a in answers if a.named]
    return "\n".join([github(headers, rows), *named])


def _group(answer: Answer) -> str:
    in_two_bytes = "bf16" if "precision" in answer.cell else answer.dtype
    return f"{answer.cell.partition(':')[0]} {in_two_bytes}"


if __name__ == "__main__":
    main()
