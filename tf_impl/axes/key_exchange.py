"""Attention of a replica's positions to those of all replicas, which have the other keys and values.

They are gathered for both passes, so the scores are computed twice: of attention, a replica keeps its own queries, keys, values
and outputs. Each replica takes its positions in one piece: TensorFlow also computes the scores of later keys before it masks
them, so all replicas compute the same number of scores, and a zigzag as in torch would save nothing.

Shape suffixes: B batch, T tokens, t tokens of a replica, H heads, K width of a head, N replicas.

References:
    Grattafiori et al., arXiv 2407.21783, section 3.3.2 (gathered keys and values); Chen et al., arXiv 1604.06174.
"""

from collections.abc import Callable
from typing import Protocol

import tensorflow as tf

from samestep.tf_impl.techniques.replica_collectives import Collectives


class AttendFrom(Protocol):
    """Attention of queries to more keys than queries."""

    def __call__(self, q_BHtK: tf.Tensor, k_BHTK: tf.Tensor, v_BHTK: tf.Tensor, /, first: int) -> tf.Tensor:
        """Mixes values; `first` is the place of the first query among the keys."""
        ...


class Gather:
    """Gathers all keys and values, and scatters the sums of their gradients."""

    def __init__(self, collectives: Collectives, count: int) -> None:
        """Keeps the collectives of the replicas that have parts of the same examples, and the number of these replicas."""
        self._collectives, self._count = collectives, count

    def whole(self, own_2BHtK: tf.Tensor) -> tf.Tensor:
        """Gathers the keys and values of all positions: [2, B, H, t, K] -> [2, B, H, T, K].

        Args:
            own_2BHtK: The keys and values of this replica.
        """
        _, rows, heads, tokens, width = own_2BHtK.shape
        parts = tf.reshape(self._collectives.gather(own_2BHtK), (self._count, *own_2BHtK.shape))
        return tf.reshape(tf.transpose(parts, (1, 2, 3, 0, 4, 5)), (2, rows, heads, self._count * tokens, width))

    def collect(self, of_whole_2BHTK: tf.Tensor) -> tf.Tensor:
        """Returns the gradient of this replica's keys and values, summed over the replicas: [2, B, H, t, K].

        TensorFlow has a reduce-scatter only between GPUs (2.21). An all-to-all sends the same number of bytes.

        Args:
            of_whole_2BHTK: This replica's part of the gradient of all of them.
        """
        _, rows, heads, positions, width = of_whole_2BHTK.shape
        own = (2, rows, heads, positions // self._count, width)
        parts = tf.transpose(tf.reshape(of_whole_2BHTK, (*own[:3], self._count, *own[3:])), (3, 0, 1, 2, 4, 5))
        received = self._collectives.to_owners(tf.reshape(parts, (self._count, -1)))
        return tf.reshape(tf.reduce_sum(received, 0), own)


def attend_to_all(
    exchange: Callable[[], Gather],
    part: Callable[[], int],
    attend: AttendFrom,
    q_BHtK: tf.Tensor,
    k_BHtK: tf.Tensor,
    v_BHtK: tf.Tensor,
) -> tf.Tensor:
    """Computes attention to the keys and values of all replicas: [B, H, t, K] each -> [B, H, t, K].

    Args:
        exchange: Returns the exchange of keys and values for the current replica.
        part: Returns which part of the positions the current replica has.
        attend: Attention on one device.
        q_BHtK: Queries.
        k_BHtK: Keys.
        v_BHtK: Values.
    """
    gather, first = exchange(), part() * q_BHtK.shape[2]

    @tf.custom_gradient
    def attention(q: tf.Tensor, own: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradients(of_mixed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.control_dependencies([of_mixed]):  # else it is computed once more before the backward pass
                queries, whole = tf.identity(q), gather.whole(tf.identity(own))
            with tf.GradientTape() as tape:
                tape.watch((queries, whole))
                mixed = attend(queries, *tf.unstack(whole), first=first)
            of_q, of_whole = tape.gradient(mixed, (queries, whole), of_mixed)
            return of_q, gather.collect(of_whole)

        return attend(q, *tf.unstack(gather.whole(own)), first=first), gradients

    return attention(q_BHtK, tf.stack((k_BHtK, v_BHtK)))
