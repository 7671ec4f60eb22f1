"""Judges random training scripts with `samestep diff`, each against lawful variants and against mistakes.

    python -m benchmarks.judging.random_scripts [--configs FIRST LAST] [--store DIR] [--jobs N]

A number determines what a script trains, and which 4 lawful variants and 8 mistakes it is compared with. Each is recorded for 10
steps. Verdicts are kept in DIR/random_scripts.jsonl, with the records next to it, and the next call continues from there. In some
scripts a mistake has no effect, such as a mean of means over parts of equal size; then `same` is right.
"""

import collections
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.judging.forked_scripts import recorded
from benchmarks.judging.judged_pairs import Pair, judge_given, options
from benchmarks.judging.power import OUTCOMES, outcome_of
from benchmarks.judging.random_settings import LAWFUL, LAYOUTS, MISTAKES, STEPS, draw
from samestep.experiments.recording.diffing import diff

SCRIPT = Path(__file__).parent / "random_script.py"
NUM_LAWFUL, NUM_MISTAKES = 4, 8


def pairs(first: int, last: int) -> Iterator[tuple[int, str]]:
    """Yields configurations with one of their variants.

    Args:
        first: The number of the first configuration.
        last: The number of the last configuration.
    """
    for config in range(first, last + 1):
        own, s = random.Random(config), draw(config)
        lawful = [name for name, is_lawful in LAWFUL.items() if is_lawful(s)]
        mistakes = [name for name, (_, is_mistake) in MISTAKES.items() if is_mistake(s)]
        for name in (*own.sample(lawful, min(NUM_LAWFUL, len(lawful))), *own.sample(mistakes, NUM_MISTAKES)):
            yield config, name


def judged(store: Path, pair: Pair) -> dict[str, object]:
    """Judges a script and a variant of it; returns the result to keep.

    Args:
        store: The folder of the records.
        pair: The configuration and the variant.
    """
    config, name = map(str, pair)
    variant, _, layout = name.partition(":")
    if variant in LAYOUTS:
        variant, layout = "", variant
    a = recorded(store, "A", ["--config", config, "--layout", "plain"], STEPS, SCRIPT)
    words = ["--config", config, "--layout", layout or "plain", *["--variant", variant] * bool(variant)]
    found = diff(a, recorded(store, "B", words, STEPS - (variant == "skipped_step"), SCRIPT), STEPS).verdict
    right = MISTAKES[name][0] if name in MISTAKES else ()
    return {"kind": found.kind, "outcome": outcome_of(right, found), "headline": found.headline}


def table_of(rows: list[dict]) -> str:
    """Returns a table of the results by variant, and a line for each false alarm and each wrong name.

    Args:
        rows: The results of all pairs.
    """
    columns = ("same", "amplified", "named", "no name", "wrongly named", "cannot tell")
    lines = [f"| variant | pairs | {' | '.join(columns)} |", f"|--|{'--|' * (1 + len(columns))}"]
    for title, table in (("lawful", LAWFUL), ("mistakes", MISTAKES)):
        own = [row for row in rows if row["pair"][1] in table]
        for name in (f"all {title}", *table):
            some = own if name.startswith("all ") else [row for row in own if row["pair"][1] == name]
            found = collections.Counter(row["kind"] if row["outcome"] == "not seen" else row["outcome"] for row in some)
            lines.append(f"| {name} | {len(some)} | {' | '.join(str(found[each]) for each in columns)} |")
    for row in rows:
        word = "ALARM" if row["pair"][1] in LAWFUL else "WRONG NAME"
        if row["outcome"] == "wrongly named" or (word == "ALARM" and row["outcome"] in OUTCOMES[:3]):
            lines.append(f"{word} {row['pair']}: {row['headline']}")
    return "\n".join(lines)


def main() -> None:
    """Judges the scripts of some configurations."""
    parser = options(__doc__)
    parser.add_argument("--configs", type=int, nargs=2, default=(0, 29), metavar=("FIRST", "LAST"))
    given = parser.parse_args()
    judge_given(given, pairs(*given.configs), judged, lambda pair: pair[:1], lambda rows: print(table_of(rows)))


if __name__ == "__main__":
    main()
