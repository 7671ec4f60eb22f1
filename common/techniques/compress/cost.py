"""The sends of compressed exchanges, and what devices keep between them.

With Ψ numbers of w bytes and N devices, a device sends 2(N-1)/N Ψ numbers of two bytes (fp16, bf16) or one (int8), in an
all-to-all of pieces and an all-gather of their sums. An all-reduce sends w / 2 or w times as much. For int8 there are also two
all-reduces of one number for each parameter, and a device keeps (1 + 1/N) w Ψ bytes of residuals.

PowerSGD of rank r sends r (n + m) numbers of a matrix n x m in two all-reduces, and keeps n m + r m numbers. All of this
applies after the warm-up, whose steps send what they would without compression.
"""

from collections.abc import Iterable, Iterator, Sequence

from samestep.common.frameworks import conventions
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.techniques.compress.pieces import ITEM_BYTES, matrix_shape, piece_size
from samestep.common.workload.models.spec import Param


def compressed_sends(run: Run, params: Sequence[Param]) -> Iterator[Send]:
    """Yields the sends that sum gradients that are exchanged together over all devices.

    A framework whose all-to-all takes whole int32 numbers pads rows to that (`packed_bytes`).

    Args:
        run: What is trained.
        params: The parameters of the gradients.
    """
    method = str(run.techniques.compress)
    if method == "powersgd":
        yield from _factors(run, params)
        return
    row_bytes = sum(piece_size(param.size, run.num_devices) for param in params) * ITEM_BYTES[method]
    row_bytes += -row_bytes % conventions(run.framework).packed_bytes
    scales = [_send(run, "all_reduce", len(params) * run.item_bytes)] if method == "int8" else []
    yield from scales
    yield _send(run, "all_to_all", run.num_devices * row_bytes)
    yield from scales
    yield _send(run, "all_gather", row_bytes)


def _factors(run: Run, params: Sequence[Param]) -> Iterator[Send]:
    """Yields the sends of PowerSGD: parameters without factors uncompressed, then all P together, then all Q."""
    rank = run.techniques.compress_rank
    matrices = [matrix_shape(param.shape, rank) for param in params]
    whole = sum(param.size for param, matrix in zip(params, matrices, strict=True) if matrix is None)
    rows = sum(matrix[0] for matrix in matrices if matrix is not None)
    columns = sum(matrix[1] for matrix in matrices if matrix is not None)
    for numbers in (whole, rows * rank, columns * rank):
        if numbers:
            yield _send(run, "all_reduce", numbers * run.item_bytes)


def _send(run: Run, operation: str, size: int) -> Send:
    return Send("backward", operation, run.mesh.only_axis, run.num_devices, size)


def residuals_bytes(run: Run, params: Iterable[Param]) -> int:
    """Returns the bytes that a device keeps from one exchange to the next.

    Args:
        run: What is trained.
        params: The parameters of the model.
    """
    if run.techniques.compress == "powersgd":
        rank = run.techniques.compress_rank
        matrices = [(param.size, matrix_shape(param.shape, rank)) for param in params]
        return sum(size + matrix[1] * rank for size, matrix in matrices if matrix is not None) * run.item_bytes
    if run.techniques.compress != "int8":
        return 0
    pieces = sum(piece_size(param.size, run.num_devices) for param in params)
    return (run.num_devices + 1) * pieces * run.item_bytes
