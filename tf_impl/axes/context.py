"""The axis `context`: every replica has the whole model, and of each example some of the positions.

All but attention treats positions one by one. Attention exchanges: each replica hands over its positions of all heads and gets
all positions of its own heads, computes attention as one device does, and hands the outputs back (Ulysses). No number is added
up in another order than on one device.

Shape suffixes: B batch, T tokens, t tokens of a replica, H heads, h heads of a replica, K width of a head, N replicas.

References:
    Jacobs et al., arXiv 2309.14509 (DeepSpeed-Ulysses).
"""

from collections.abc import Callable
from typing import cast

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.models.transformer import Attend, Transformer
from samestep.tf_impl.techniques.replica_collectives import Collectives, Replicas, replica_id


class HeadExchange:
    """What the attentions of a model exchange, from each of its replicas; whole examples, as in evaluation, are not cut."""

    def __init__(self, run: Run, strategy: tf.distribute.Strategy) -> None:
        """Makes what the collectives need.

        Args:
            run: What is trained.
            strategy: Outside of its scope.
        """
        self._mesh, self._count = run.mesh, run.mesh.axis("context")
        (self._whole,) = run.workload.model.inputs().shape
        self._replicas = Replicas(strategy, self._count)
        # Each replica is traced as often as the others, so the number of a call is the same for all.
        self._own: dict[int, Collectives] = {}

    def part(self) -> int:
        """Returns which part of the positions the present replica has."""
        return self._mesh.part(replica_id(), "positions")

    def rows(self, table: tf.Variable | tf.Tensor, tokens: int) -> tf.Variable | tf.Tensor:
        """Returns the rows of a table of positions that the present replica has: [T, D] -> [t, D].

        Args:
            table: All rows.
            tokens: How many are wanted.
        """
        return table if tokens == self._whole else tf.split(tf.convert_to_tensor(table), self._count)[self.part()]

    def around(self, attend: Attend) -> Attend:
        """Makes an attention on positions in parts of one on all of them."""

        def exchanging(q_BHtK: tf.Tensor, k_BHtK: tf.Tensor, v_BHtK: tf.Tensor) -> tf.Tensor:
            count, (heads, tokens, width) = self._count, q_BHtK.shape[1:]
            if tokens == self._whole:
                return attend(q_BHtK, k_BHtK, v_BHtK)
            # Queries, keys and values go together.
            parts = tf.reshape(tf.stack((q_BHtK, k_BHtK, v_BHtK)), (3, -1, count, heads // count, tokens, width))
            received_N3BhtK = self._exchange(tf.transpose(parts, (2, 0, 1, 3, 4, 5)))
            whole = tf.transpose(received_N3BhtK, (1, 2, 3, 0, 4, 5))
            q, k, v = tf.unstack(tf.reshape(whole, (3, -1, heads // count, count * tokens, width)))
            mixed = tf.reshape(attend(q, k, v), (-1, heads // count, count, tokens, width))
            received_NBhtK = self._exchange(tf.transpose(mixed, (2, 0, 1, 3, 4)))
            return tf.reshape(tf.transpose(received_NBhtK, (1, 0, 2, 3, 4)), (-1, heads, tokens, width))

        return exchanging

    def _exchange(self, parts: tf.Tensor) -> tf.Tensor:
        """[N, ...], one part for each replica -> [N, ...], one from each replica."""
        collectives = self._collectives()

        @tf.custom_gradient
        def exchange(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return _all_to_all(collectives, x), lambda dy: _all_to_all(collectives, dy)

        return exchange(parts)

    def _collectives(self) -> Collectives:
        replica = replica_id()
        if replica not in self._own:
            group = self._mesh.part(replica, "examples")
            self._own[replica] = self._replicas.collectives("context", group, "context")
        return self._own[replica]


def _all_to_all(collectives: Collectives, parts: tf.Tensor) -> tf.Tensor:
    return tf.reshape(collectives.to_owners(tf.reshape(parts, (parts.shape[0], -1))), parts.shape)


def exchange_heads(run: Run, model: Callable[..., tf.Tensor], strategy: tf.distribute.Strategy) -> None:
    """Has a model take some of the positions on each replica, and every attention exchange positions for heads, in place.

    Args:
        run: What is trained; without several replicas along `context` nothing changes.
        model: The model.
        strategy: Outside of its scope.
    """
    if run.mesh.axis("context") == 1:
        return
    model = cast(Transformer, model)  # other models are refused
    exchange = HeadExchange(run, strategy)
    model.own_rows = exchange.rows
    for each in (model.behind, *(behind for block in model.blocks for behind in block.behind)):
        each.part = exchange.part
    for block in model.blocks:
        block.attention.own_rows = exchange.rows
        block.attention.attend = exchange.around(block.attention.attend)
