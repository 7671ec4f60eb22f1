"""Applies the techniques of a run for models and programs, which name no single technique.

A model is built with the run's kind of product, and then restructured. A program asks for the exchange of gradients.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from samestep.common.program import Arrays
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.local_steps.ranks import averaged
from samestep.common.techniques.used import sums_gradients
from samestep.tf_impl.techniques.clip_norm import AddUp, transform
from samestep.tf_impl.techniques.fixed_order import Ordered, keep_order
from samestep.tf_impl.techniques.local_steps import RankSteps, Slots
from samestep.tf_impl.techniques.powersgd import kind_of
from samestep.tf_impl.techniques.precision import narrow_type, product_of
from samestep.tf_impl.techniques.recompute import recompute as restructure
from samestep.tf_impl.techniques.replica_collectives import Replicas

__all__ = [
    "GradientExchange",
    "averaged",
    "build_exchange",
    "exchange_read",
    "meeting",
    "narrow_type",
    "product_of",
    "restructure",
    "transform",
    "transform_replicas",
]


class GradientExchange(Protocol):
    """The exchanges of the replicas of one process, and what each keeps from one to the next."""

    @property
    def kept(self) -> Mapping[str, tf.Variable]:
        """Variables of which each replica has its own copy."""

    def exchange(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums the gradients of all replicas, in the order of the parameters; must be called on each replica."""

    def snapshot(self) -> tuple[Arrays, ...]:
        """Gathers what every replica of every process keeps."""

    def restore(self, local: Sequence[Arrays]) -> None:
        """Restores what every replica kept; without it, resets it."""


def build_exchange(
    run: Run, strategy: tf.distribute.Strategy, params: Mapping[str, tf.Variable], slots: Slots
) -> GradientExchange | None:
    """Builds the exchange of a run's technique, if one has an exchange, and fixes the order in which the program adds up.

    Args:
        run: The run, with its techniques.
        strategy: The strategy, outside of its scope.
        params: The params by neutral name.
        slots: The optimizer state.
    """
    keep_order(run)
    if run.num_devices == 1 or sums_gradients(run.techniques) is None:
        return None
    if run.techniques.local_steps is not None:
        return RankSteps(run, strategy, params, slots)
    kind = kind_of(run) if run.techniques.fixed_order is None else Ordered
    return kind(run, Replicas(strategy, run.num_devices), params)


def meeting(exchange: GradientExchange | None) -> RankSteps | None:
    """Returns the exchange if it is that of replicas that take steps alone and meet after some; None otherwise."""
    return exchange if isinstance(exchange, RankSteps) else None


def exchange_read(
    exchange: GradientExchange, gradients: Collection[tf.Tensor | None], params: Iterable[tf.Variable]
) -> list[tf.Tensor | None]:
    """Sums the gradients of all replicas; for a variable that nothing reads, zeros are exchanged and None is returned.

    Args:
        exchange: The exchange of gradients.
        gradients: The gradients in the order of the parameters.
        params: The parameters.
    """
    filled = [tf.zeros_like(param) if each is None else each for each, param in zip(gradients, params, strict=True)]
    summed = zip(gradients, exchange.exchange(filled), strict=True)
    return [None if own is None else each for own, each in summed]


def transform_replicas(
    strategy: tf.distribute.Strategy, summed: list[tf.Tensor], techniques: Techniques, add_up: AddUp
) -> Sequence[tf.Tensor]:
    """Transforms the gradients where they are: each replica its copy, or the one device that has them all.

    Args:
        strategy: The strategy, in its cross-replica context.
        summed: The gradient of every parameter, summed over all replicas.
        techniques: The techniques of the run.
        add_up: Adds up squares on a replica, where each has parts of some gradients.
    """
    if not techniques.need_norm:
        return summed
    if isinstance(summed[0], tf.distribute.DistributedValues):
        return strategy.extended.call_for_each_replica(transform, args=(summed, techniques, add_up))
    with tf.device(summed[0].device):
        return transform(summed, techniques)
