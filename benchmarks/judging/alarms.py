"""Counts false alarms of `samestep diff` on healthy pairs of scripts in different layouts, each judged again in float64.

    python -m benchmarks.judging.alarms [--pairs N] [--store DIR] [--jobs N]

500 pairs: 10 scripts x 5 layouts x 5 seeds x {float32, bf16}, 20 steps each. Verdicts are kept in DIR/alarms.jsonl, with the
records next to it, and the next call continues from there. The record of a script and its reruns are used for all five layouts.
"""

import collections
import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.judging.alarm_script import LAYOUTS, MODELS, STEPS
from benchmarks.judging.forked_scripts import recorded
from benchmarks.judging.judged_pairs import Pair, judge_pairs
from samestep.common.errors import percent
from samestep.experiments.recording.diffing import diff, in_float64

SEEDS = range(5)


def pairs() -> Iterator[tuple[str, str, int, bool]]:
    """Yields model, layout, seed, and whether it is in bf16; any first part of them covers some of everything."""
    for seed, is_bf16, turn in itertools.product(SEEDS, (False, True), range(len(LAYOUTS))):
        for number, model in enumerate(MODELS):
            yield model, list(LAYOUTS)[(number + turn) % len(LAYOUTS)], seed, is_bf16


def _judged(store: Path, pair: Pair) -> dict[str, object]:
    model, layout, seed, is_bf16 = pair
    a, b = (
        recorded(
            store, name, ["--model", str(model), "--layout", each, "--seed", str(seed), *["--bf16"] * bool(is_bf16)]
        )
        for name, each in (("A", "plain"), ("B", str(layout)))
    )
    found = diff(a, b, STEPS).verdict
    exact = diff(*in_float64((a, b)), STEPS).verdict
    return {
        "kind": found.kind,
        "headline": found.headline,
        "worst": found.worst,
        "steps": found.num_steps,
        "float64": exact.kind,
        "float64_headline": exact.headline,
    }


def _print(rows: list[dict]) -> None:
    print(
        "| dtype | pairs | same | amplified | cannot tell | ALARMS | alarms in float64 | worst T of those that are the same |"
    )
    print("|--|--|--|--|--|--|--|--|")
    for is_bf16 in (False, True):
        own = [row for row in rows if row["pair"][3] == is_bf16]
        kinds = collections.Counter(row["kind"] for row in own)
        exact = sum(row["float64"] in ("named", "unnamed") for row in own)
        worst = max((row["worst"] for row in own if row["kind"] in ("same", "amplified")), default=0.0)
        alarms = kinds["named"] + kinds["unnamed"]
        cells = (len(own), kinds["same"], kinds["amplified"], kinds["unknown"], alarms, exact, f"{worst:.2f}")
        print(f"| {'bf16' if is_bf16 else 'float32'} | {' | '.join(map(str, cells))} |")
    wrong = [row for row in rows if {row["kind"], row["float64"]} & {"named", "unnamed"}]
    for row in wrong:
        print(f"ALARM {row['pair']}: {row['headline']} (float64: {row['float64_headline']})")
    if rows and not wrong:
        print(f"No alarm in {len(rows)} pairs: at most {percent(3 / len(rows), 1)} of such pairs have one, at 95 %.")


if __name__ == "__main__":
    judge_pairs(__doc__, pairs(), 500, _judged, lambda pair: (pair[0], *pair[2:]), _print)
