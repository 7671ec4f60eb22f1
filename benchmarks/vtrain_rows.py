"""How alike the one-node rows of `common/seconds/vtrain` are: `python -m benchmarks.vtrain_rows`.

Rows without a pipeline are fitted by n (L a + b) + c: n micro-batches of L layers at `a` seconds and a head at `b`, which depend
on hidden size, tensor parallelism and micro-batch, and a `c` of model, tensor and data parallelism for the exchange and update.
Times of separate runs would differ by their noise from such a sum.
"""

from collections.abc import Sequence

import numpy as np

from samestep.common.seconds.measured_iterations import MeasuredIteration
from samestep.common.seconds.validation import carried_rows


def residuals(rows: Sequence[MeasuredIteration]) -> tuple[int, float, float]:
    """Fits the sum.

    Args:
        rows: Without a pipeline.

    Returns:
        The number of its constants, the largest residual in seconds, and the largest relative to its row.
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


def main() -> None:
    """Prints how well the sum fits."""
    rows = [row for row in carried_rows() if row.is_one_node and row.layout.pipe == 1]
    constants, most, share = residuals(rows)
    print(f"{len(rows)} rows, {constants} constants: largest residual {1e3 * most:.3f} ms, {share:.3%} of its row")


if __name__ == "__main__":
    main()
