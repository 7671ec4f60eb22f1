"""The fixed order: gradients are added up as the tree of `common/tree.py` says, over replicas as well.

TensorFlow's reductions start each piece at a different replica, so pieces are sent to the replica that adds them up.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from samestep.common.program import Arrays
from samestep.common.strategy import Run
from samestep.common.tree import add_up
from samestep.tf_impl.techniques.replica_collectives import Replicas


class Ordered:
    """A `GradientExchange` that keeps nothing."""

    kept: Mapping[str, tf.Variable] = {}

    def __init__(self, run: Run, replicas: Replicas, params: Mapping[str, tf.Variable]) -> None:
        self._replicas, self._count = replicas, run.num_devices

    def exchange(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums the gradients of all replicas, in the order of the parameters; must be called on each replica."""
        sizes = [gradient.shape.num_elements() for gradient in gradients]
        piece = -(-sum(sizes) // self._count)
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        rows = tf.reshape(tf.pad(flat, [[0, piece * self._count - sum(sizes)]]), [self._count, piece])
        collectives = self._replicas.collectives("exchange")
        own = add_up(tf.unstack(collectives.to_owners(rows), self._count), tf.add)
        whole = tf.split(tf.reshape(collectives.to_all(own), [-1])[: sum(sizes)], sizes)
        return [tf.reshape(part, gradient.shape) for part, gradient in zip(whole, gradients, strict=True)]

    def snapshot(self) -> tuple[Arrays, ...]:
        """Returns nothing."""
        return ()

    def restore(self, local: Sequence[Arrays]) -> None:
        """Takes nothing."""


def keep_order(run: Run) -> None:
    """Keeps TensorFlow from adding up in another order than is written: its arithmetic optimizer makes one sum of several (2.21).

    Args:
        run: What is trained.
    """
    if run.techniques.fixed_order is not None:
        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
