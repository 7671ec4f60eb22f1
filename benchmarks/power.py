"""What `samestep diff` sees of four small mistakes, in float32, in records of one step.

    python -m benchmarks.power [--pairs N] [--store DIR]

100 pairs of each mistake: 10 scripts x 10 seeds, the script as it is against the wrong one, in the five layouts by turns. The
records are kept in DIR, and the next call takes what is there.
"""

import argparse
import collections
import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.alarm_script import LAYOUTS, MISTAKES, MODELS
from benchmarks.forked_scripts import begin, recorded
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.experiments.recording.diffing import diff

SEEDS = range(10)
NAMES = {
    "off": (),
    "target": ("other_targets", "mean_of_means"),
    "twice": ("padded_sample_twice",),
    "wire": ("gradients_rounded_to_bf16",),
}
"""The names that say what a mistake is. None says that all gradients have a factor that nobody knows; the sentence of
`mean_of_means` names other targets as well."""


@dataclasses.dataclass(frozen=True)
class Judged:
    """A pair.

    Attributes:
        mistake: What is wrong in B.
        words: The script, its layout and its seed.
        verdict: What was said of it.
    """

    mistake: str
    words: tuple[str, ...]
    verdict: RecordedVerdict

    @property
    def outcome(self) -> str:
        """One of OUTCOMES."""
        if self.verdict.kind == "unknown":
            return "cannot tell"
        if self.verdict.exit_code == 0:
            return "not seen"
        names = {cause.name for cause in self.verdict.causes}
        return "no name" if not names else "named" if names & set(NAMES[self.mistake]) else "wrongly named"


OUTCOMES = ("named", "no name", "wrongly named", "cannot tell", "not seen")
SEEN = OUTCOMES[:3]


def pairs() -> Iterator[tuple[str, str, str]]:
    """Model, layout and seed; the layouts take turns."""
    for seed, (number, model) in itertools.product(SEEDS, enumerate(MODELS)):
        yield model, list(LAYOUTS)[(number + seed) % len(LAYOUTS)], str(seed)


def _judged(store: Path, model: str, layout: str, seed: str) -> Iterator[Judged]:
    a = recorded(store, "A", ["--model", model, "--layout", "plain", "--seed", seed], 1)
    for mistake in MISTAKES:
        words = ("--model", model, "--layout", layout, "--seed", seed, "--mistake", mistake)
        yield Judged(mistake, words, diff(a, recorded(store, "B", words, 1), 1).verdict)


def _print(rows: list[Judged]) -> None:
    print(f"| mistake | pairs | seen | {' | '.join(OUTCOMES)} | least T |")
    print("|--|--|--|--|--|--|--|--|--|")
    for mistake, meaning in MISTAKES.items():
        own = [row for row in rows if row.mistake == mistake]
        found = collections.Counter(row.outcome for row in own)
        measured = [max(each.times for each in row.verdict.rows) for row in own if row.verdict.rows]
        cells = (
            len(own),
            sum(found[each] for each in SEEN),
            *(found[each] for each in OUTCOMES),
            f"{min(measured):,.0f}" if measured else "",
        )
        print(f"| {meaning} | {' | '.join(map(str, cells))} |")
    for row in rows:
        if row.outcome not in ("named", "no name"):
            print(f"{row.outcome}: {' '.join(row.words)}: {row.verdict.headline}")


def main() -> None:
    """Judges as many pairs as are asked for, and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--store", type=Path, default=Path("runs/power"))
    given = parser.parse_args()
    begin(given.store)
    rows: list[Judged] = []
    for number, pair in enumerate(itertools.islice(pairs(), given.pairs), 1):
        rows += _judged(given.store, *pair)
        print(f"{number}: {' '.join(pair)}", file=sys.stderr, flush=True)
    _print(rows)


if __name__ == "__main__":
    main()
