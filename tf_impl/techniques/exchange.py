"""The exchange of gradients that a technique has in place of the strategy's own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from samestep.common.program import Arrays
from samestep.common.strategy import Run
from samestep.tf_impl.techniques.compress import build_compressor


class GradientExchange(Protocol):
    """The exchanges of the replicas of one process, and what each keeps from one to the next.

    Attributes:
        kept: Variables, of each replica its own.
    """

    kept: Mapping[str, tf.Variable]

    def exchange(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums the gradients of all replicas, in the order of the parameters; to be called on each of them."""

    def snapshot(self) -> tuple[Arrays, ...]:
        """Gathers what every replica of every process keeps."""

    def restore(self, local: Sequence[Arrays]) -> None:
        """Takes what every replica kept; nothing lets it start anew."""


def build_exchange(
    run: Run, strategy: tf.distribute.Strategy, params: Mapping[str, tf.Variable]
) -> GradientExchange | None:
    """Builds the exchange of the technique of a run that has one.

    Args:
        run: With its techniques.
        strategy: Outside of its scope.
        params: By neutral name.
    """
    return build_compressor(run, strategy, params)


def exchange_read(
    exchange: GradientExchange, gradients: Sequence[tf.Tensor | None], params: Iterable[tf.Variable]
) -> list[tf.Tensor | None]:
    """Sums the gradients of all replicas; of a variable that nothing reads zeros are exchanged, and None is left.

    Args:
        exchange: What exchanges them.
        gradients: In the order of the parameters.
        params: The parameters.
    """
    filled = [tf.zeros_like(param) if each is None else each for each, param in zip(gradients, params, strict=True)]
    summed = zip(gradients, exchange.exchange(filled), strict=True)
    return [None if own is None else each for own, each in summed]
