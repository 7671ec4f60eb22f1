"""Measures how many mistakes `samestep diff` finds in one step under bf16 autocast, without and with `--float64`.

    python -m benchmarks.judging.power_bf16 [--pairs N] [--store DIR] [--jobs N]

30 pairs of each mistake: 10 scripts x 3 seeds, the correct script against the wrong one, alternating between the five layouts.
Gradients are off by 0.01 % to 30 %. The records are kept in DIR and reused by the next call.
"""

import collections
from pathlib import Path

from benchmarks.judging.alarm_script import MISTAKES
from benchmarks.judging.forked_scripts import recorded
from benchmarks.judging.judged_pairs import Pair, judge_pairs
from benchmarks.judging.power import NAMES, outcome_of, pairs
from samestep.experiments.recording.diffing import diff, in_float64

SIZES = ("0.0001", "0.001", "0.01", "0.03", "0.1", "0.3")
WRONG = {
    **{f"all gradients are off by {float(size) * 100:g} %": ("off", "--by", size) for size in SIZES},
    **{meaning: (mistake,) for mistake, meaning in MISTAKES.items() if mistake != "off"},
}
"""Description of what is wrong -> the mistake, and the arguments for its size."""
KINDS = ("seen", "cannot tell", "not seen", "wrongly named")


def _kind(outcome: str) -> str:
    return outcome if outcome in KINDS else "seen"


def _judged(store: Path, pair: Pair) -> dict[str, object]:
    model, layout, seed = map(str, pair)
    same = ("--model", model, "--seed", seed, "--bf16")
    a = recorded(store, "A", [*same, "--layout", "plain"], 1)
    found: dict[str, object] = {}
    for meaning, (mistake, *words) in WRONG.items():
        b = recorded(store, "B", [*same, "--layout", layout, "--mistake", mistake, *words], 1)
        verdicts = (diff(a, b, 1).verdict, diff(*in_float64((a, b)), 1).verdict)
        found[meaning] = [(_kind(outcome_of(NAMES[mistake], each)), each.headline) for each in verdicts]
    return found


def _print(rows: list[dict]) -> None:
    print(f"| mistake | pairs | {' | '.join(KINDS)} | {' | '.join(f'{each} in float64' for each in KINDS)} |")
    print(f"|{'--|' * (2 + 2 * len(KINDS))}")
    for meaning in WRONG:
        counts = [collections.Counter(row[meaning][side][0] for row in rows) for side in (0, 1)]
        print(f"| {meaning} | {len(rows)} | {' | '.join(str(count[kind]) for count in counts for kind in KINDS)} |")


if __name__ == "__main__":
    judge_pairs(__doc__, pairs(), 30, _judged, lambda pair: (pair[0], pair[2]), _print)
