"""Measures how many of four small mistakes `samestep diff` finds, in float32, in records of one step.

    python -m benchmarks.judging.power [--pairs N] [--store DIR] [--jobs N]

100 pairs of each mistake: 10 scripts x 10 seeds, the correct script against the wrong one, alternating between the five layouts.
The records are kept in DIR and reused by the next call.
"""

import collections
import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

from benchmarks.judging.alarm_script import LAYOUTS, MISTAKES, MODELS
from benchmarks.judging.forked_scripts import recorded
from benchmarks.judging.judged_pairs import Pair, judge_pairs
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.experiments.recording.diffing import diff

SEEDS = range(10)
NAMES = {
    "off": (),
    "target": ("other_loss", "targets_differ", "mean_of_means"),
    "twice": ("padded_sample_twice",),
    "wire": ("gradients_rounded_to_bf16",),
}
"""The names that correctly describe each mistake. No name stands for an arbitrary factor on all gradients; the sentence of
`mean_of_means` also covers changed targets."""


OUTCOMES = ("named", "no name", "wrongly named", "cannot tell", "not seen")
SEEN = OUTCOMES[:3]


def outcome_of(right: Collection[str], verdict: RecordedVerdict) -> str:
    """Returns one of OUTCOMES.

    Args:
        right: The names that correctly describe what is wrong in the second script.
        verdict: The verdict on the pair.
    """
    if verdict.kind == "unknown":
        return "cannot tell"
    if verdict.exit_code == 0:
        return "not seen"
    names = {cause.name for cause in verdict.causes}
    return "no name" if not names else "named" if names & set(right) else "wrongly named"


def pairs() -> Iterator[tuple[str, str, str]]:
    """Yields model, layout and seed; the layouts alternate."""
    for seed, (number, model) in itertools.product(SEEDS, enumerate(MODELS)):
        yield model, list(LAYOUTS)[(number + seed) % len(LAYOUTS)], str(seed)


def _judged(store: Path, pair: Pair) -> dict[str, object]:
    model, layout, seed = map(str, pair)
    a = recorded(store, "A", ["--model", model, "--layout", "plain", "--seed", seed], 1)
    found: dict[str, object] = {}
    for mistake in MISTAKES:
        words = ("--model", model, "--layout", layout, "--seed", seed, "--mistake", mistake)
        verdict = diff(a, recorded(store, "B", words, 1), 1).verdict
        times = max((each.times for each in verdict.rows), default=None)
        found[mistake] = {"outcome": outcome_of(NAMES[mistake], verdict), "headline": verdict.headline, "times": times}
    return found


def _print(rows: list[dict]) -> None:
    print(f"| mistake | pairs | seen | {' | '.join(OUTCOMES)} | least T |")
    print("|--|--|--|--|--|--|--|--|--|")
    for mistake, meaning in MISTAKES.items():
        own = [row[mistake] for row in rows]
        found = collections.Counter(row["outcome"] for row in own)
        measured = [row["times"] for row in own if row["times"] is not None]
        cells = (
            len(own),
            sum(found[each] for each in SEEN),
            *(found[each] for each in OUTCOMES),
            f"{min(measured):,.0f}" if measured else "",
        )
        print(f"| {meaning} | {' | '.join(map(str, cells))} |")
    for row, mistake in itertools.product(rows, MISTAKES):
        if row[mistake]["outcome"] not in ("named", "no name"):
            print(f"{row[mistake]['outcome']}: {' '.join(row['pair'])} {mistake}: {row[mistake]['headline']}")


if __name__ == "__main__":
    judge_pairs(__doc__, pairs(), 100, _judged, lambda pair: (pair[0], pair[2]), _print)
