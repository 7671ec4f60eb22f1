"""Fits the constants of a machine file to measured iterations.

`python -m benchmarks.predicting.fit_machine` prints and writes them. Seven constants, each with one effect, are fitted to the
973 rows of `common/seconds/vtrain` at once. The fit minimizes the sum of soft-L1 losses of the logarithm of predicted over
measured seconds, in which rows on many nodes count thirty times, since there are few. Then the constants are fitted again without
the rows of one model, of one hidden size, or above some size. These fits go into `left-out.toml`, with which `samestep predict
--validate vtrain` predicts rows to which nothing was fitted. Further fits leave out rows with the same number of GPUs, size along
an axis, or batch, and only show how well those rows are then predicted.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scipy.optimize import least_squares

from samestep.common.errors import percent
from samestep.common.seconds.machine import machines
from samestep.common.seconds.measured_iterations import MeasuredIteration
from samestep.common.seconds.validation import (
    CLUSTER,
    LEFT_OUT,
    SERVER,
    SMALLER,
    WAITS,
    Score,
    carried_rows,
    compare,
    machines_with,
    score,
)

GUESSES = {
    "matrix_share": 0.7,
    "unaligned_share": 0.3,
    "attention_share": 0.5,
    "block_host_seconds": 2e-3,
    "unfused_softmax_seconds": 1e-3,
    **dict.fromkeys(WAITS.values(), 1e-4),
}
"""The start of a fit, and the values of constants that no row determines; they are round numbers chosen without any row."""
SHARED = tuple(name for name in GUESSES if name not in WAITS.values())
"""The constants that the server and the cluster share."""
PULL = 0.01
"""The weight that pulls a constant to its guess, as strongly as a row that is off by a hundredth of their ratio."""
SCALE = 0.3
"""The error above which a row counts less than quadratically."""
CLUSTER_WEIGHT = 30.0
LARGEST_SHARE = 0.92
"""The largest share of a peak; no kernel is known to reach more."""


def fit(rows: Sequence[MeasuredIteration]) -> dict[str, float]:
    """Returns the constants fitted to rows; the waits on server and cluster have the names in `WAITS`.

    Args:
        rows: The measured rows.
    """
    start = [math.log(guess) for guess in GUESSES.values()]
    most = [LARGEST_SHARE if name.endswith("share") else 1.0 for name in GUESSES]

    def residuals(logarithms: Sequence[float]) -> list[float]:
        used = machines_with(dict(zip(GUESSES, map(math.exp, logarithms), strict=True)))
        compared = compare(rows, lambda row: used[row.is_one_node])
        weights = (1.0 if row.is_one_node else CLUSTER_WEIGHT for row in rows)
        errors = [
            weight * math.log(each.predicted / each.measured) for weight, each in zip(weights, compared, strict=True)
        ]
        return errors + [PULL * (value - guess) for value, guess in zip(logarithms, start, strict=True)]

    found = least_squares(
        residuals,
        start,
        bounds=([math.log(1e-9)] * len(start), [math.log(value) for value in most]),
        loss="soft_l1",
        f_scale=SCALE,
    )
    return {name: float(f"{math.exp(value):.4g}") for name, value in zip(GUESSES, found.x, strict=True)}


def told(name: str, found: Score) -> str:
    """Returns one line about a score."""
    return (
        f"{name:32} {found.rows:4} rows: mean {percent(found.mape, 2):>7}, largest {percent(found.max_error, 1):>7}, "
        f"{found.far} beyond 25 %, regret {percent(found.regret or 0.0, 2)} of {found.problems}"
    )


def _without(
    name: str, rows: Sequence[MeasuredIteration], is_left_out: Callable[[MeasuredIteration], bool]
) -> dict[str, float]:
    """Fits to the rows that are not left out, and prints the errors on the others."""
    left_out = [row for row in rows if is_left_out(row)]
    constants = fit([row for row in rows if not is_left_out(row)])
    used = machines_with(constants)
    print(
        told(
            f"{'' if name in SMALLER else 'without '}{name}",
            score(compare(left_out, lambda row: used[row.is_one_node])),
        )
    )
    return constants


def write_constants(path: Path, constants: Mapping[str, float]) -> None:
    """Replaces the values of a machine file.

    Args:
        path: The path of the file.
        constants: The constants by the name of the rate, each of which already has a table.
    """
    text = path.read_text()
    for name, value in constants.items():
        text, count = re.subn(rf"(?<=\n\[{name}\]\nvalue = )\S+", f"{value:g}", text)
        assert count == 1, name
    path.write_text(text)


def main() -> None:
    """Fits to all rows, and to all but some, prints the errors, and writes the files."""
    rows = carried_rows()
    for field in ("gpus", "tensor", "pipe", "microbatch_size", "batch_size"):
        found = []
        for value in sorted({getattr(row, field) for row in rows}):
            left_out = [row for row in rows if getattr(row, field) == value]
            used = machines_with(fit([row for row in rows if getattr(row, field) != value]))
            found += compare(left_out, lambda row, of=used: of[row.is_one_node])
        print(told(f"each without its {field}", score(found)))
    lines = [
        "# The constants of fits that left out some rows; written by `python -m benchmarks.predicting.fit_machine`."
    ]
    splits = {
        name: lambda row, name=name: name in (row.model, row.family)
        for name in dict.fromkeys([*(row.model for row in rows), *(row.family for row in rows)])
    }
    splits |= {name: lambda row, seen=seen: not seen(row) for name, seen in SMALLER.items()}
    for name, is_left_out in splits.items():
        constants = _without(name, rows, is_left_out)
        lines += [f'\n["{name}"]', *(f"{constant} = {value:g}" for constant, value in constants.items())]
    LEFT_OUT.write_text("\n".join(lines) + "\n")
    constants = fit(rows)
    of_all = machines_with(constants)
    for name, is_server in ((SERVER, True), (CLUSTER, False)):
        found = compare([row for row in rows if row.is_one_node is is_server], lambda row: of_all[row.is_one_node])
        print(told(f"all, {name}", score(found)))
    print("\n".join(f"{name} = {value:g}" for name, value in constants.items()))
    files = machines()
    write_constants(
        files[CLUSTER], {name: constants[name] for name in SHARED} | {"wait_seconds": constants[WAITS[False]]}
    )
    write_constants(files[SERVER], {"wait_seconds": constants[WAITS[True]]})


if __name__ == "__main__":
    main()
