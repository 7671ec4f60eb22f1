"""Compression as a technique."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samestep.common.strategy import Run
from samestep.common.techniques.compress.cost import compressed_sends, residuals_bytes
from samestep.common.techniques.compress.flag import CompressFlags
from samestep.common.techniques.compress.refusals import check_compression, check_warm_up
from samestep.common.techniques.technique import GradientExchange, Technique

if TYPE_CHECKING:
    from samestep.common.program import Arrays


def exchange(run: Run, parts: Sequence["Arrays"], local: Sequence["Arrays"]) -> tuple["Arrays", tuple["Arrays", ...]]:
    """Sums the gradients of all ranks, as `statement.exchange` says.

    Args:
        run: With the method.
        parts: The gradients of each rank.
        local: What each rank kept of the last exchange.
    """
    from samestep.common.techniques.compress import statement  # here: it needs NumPy, which a prediction does without

    return statement.exchange(run, parts, local)


COMPRESS = Technique(
    flags=CompressFlags,
    refuse=check_compression,
    refuse_launch=check_warm_up,
    in_textbooks=("activations",),
    exchange=GradientExchange(
        flag="--compress",
        statement=exchange,
        sends=compressed_sends,
        kept_bytes=residuals_bytes,
        first_step=lambda techniques: techniques.compress_warmup_steps,
    ),
)
