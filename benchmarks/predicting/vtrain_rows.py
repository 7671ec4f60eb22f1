"""Shows how consistent the rows of `common/seconds/vtrain` are: `python -m benchmarks.predicting.vtrain_rows`.

Rows on one node without a pipeline are fitted by n (L a + b) + c: n micro-batches with L layers of `a` seconds and a head of `b`
seconds, which depend on hidden size, tensor parallelism and micro-batch, plus `c` for exchange and update, which depends on
model, tensor and data parallelism. Times of separate runs would differ from such a sum by their noise.

For rows on many nodes it prints, for each size of tensor parallelism, the error of predictions, and a number without any
prediction: the GPU-seconds per sequence without the bubble of the pipeline. A larger size exchanges more, so its sequences should
take longer. The last line is the error that would remain if each size had its own factor, fitted to these very rows.
"""

from collections.abc import Sequence

import numpy as np

from samestep.common.errors import percent
from samestep.common.seconds.measured_iterations import MeasuredIteration
from samestep.common.seconds.validation import Compared, carried_rows, compare, score, unseen_machine


def residuals(rows: Sequence[MeasuredIteration]) -> tuple[int, float, float]:
    """Fits the sum to rows.

    Args:
        rows: Rows on one node without a pipeline.

    Returns:
        The number of constants, the largest residual in seconds, and the largest residual relative to its row.
    """
    columns: dict[tuple[object, ...], int] = {}
    entries = []
    for number, row in enumerate(rows):
        shape, layout, count = row.shape, row.layout, row.layout.microbatches
        sizes, rest = (shape.width, layout.tensor, layout.microbatch_size), (shape.width, shape.layers, layout.tensor)
        constants = {("a", *sizes): count * shape.layers, ("b", *sizes): count, ("c", *rest, layout.data): 1}
        for name, factor in constants.items():
            entries.append((number, columns.setdefault(name, len(columns)), factor))
    matrix = np.zeros((len(rows), len(columns)))
    for number, column, factor in entries:
        matrix[number, column] = factor
    seconds = np.array([row.seconds for row in rows])
    left = np.abs(matrix @ np.linalg.lstsq(matrix, seconds, rcond=None)[0] - seconds)
    return len(columns), float(left.max()), float((left / seconds).max())


def sequence_seconds(row: MeasuredIteration) -> float:
    """Returns the GPU-seconds of a pipeline per sequence, without the bubble.

    Args:
        row: The row; its n micro-batches take the time of n + p - 1 in sequence through p stages.
    """
    layout = row.layout
    followed = (layout.microbatches + layout.pipe - 1) * layout.microbatch_size
    return row.seconds / followed * layout.pipe * layout.tensor


def least_error(compared: Sequence[Compared]) -> float:
    """Returns the mean error of rows after multiplying all predictions by the best common factor."""
    ratios = np.array([each.predicted / each.measured for each in compared])
    return min(float(np.abs(ratios / ratio - 1).mean()) for ratio in ratios)  # at the best factor, one row is exact


def main() -> None:
    """Prints how well the sum fits, and the rows on many nodes by tensor parallelism."""
    rows = [row for row in carried_rows() if row.is_one_node and row.layout.pipe == 1]
    constants, most, share = residuals(rows)
    print(
        f"{len(rows)} rows, {constants} constants: largest residual {1e3 * most:.3f} ms, {percent(share, 3)} of its row"
    )
    groups: dict[tuple[int, int], list[MeasuredIteration]] = {}
    for row in carried_rows():
        if not row.is_one_node:
            groups.setdefault((row.layout.num_gpus, row.layout.tensor), []).append(row)
    left = 0.0
    for (gpus, tensor), alike in sorted(groups.items()):
        compared = compare(alike, unseen_machine)
        found, seconds = score(compared), sorted(map(sequence_seconds, alike))
        left += len(alike) * least_error(compared)
        print(
            f"{gpus} GPUs, tensor {tensor}: rows: {found.rows}, mean error {percent(found.mape, 1)}; a sequence took "
            f"{seconds[0]:.2f} to {seconds[-1]:.2f} GPU-seconds"
        )
    rows_of_all = sum(map(len, groups.values()))
    print(f"with the best factor for each of {len(groups)} sizes: mean error {percent(left / rows_of_all, 1)}")


if __name__ == "__main__":
    main()
