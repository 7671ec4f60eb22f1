"""The axis `context`: every replica has the whole model, and a part of the positions of each example.

All layers but attention treat positions one by one. Attention exchanges positions for heads (DeepSpeed-Ulysses): each replica
sends its positions of all heads, gets all positions of its own heads, computes attention as one device does, and sends the
outputs back. The order of summation is that of one device. Alternatively, keys and values come to the queries
(`key_exchange.py`).

Shape suffixes: B batch, T tokens, t tokens of a replica, H heads, h heads of a replica, K width of a head, N replicas.

References:
    Jacobs et al., arXiv 2309.14509 (DeepSpeed-Ulysses).
"""

import functools
from collections.abc import Callable
from typing import cast

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.axes.key_exchange import Gather, attend_to_all
from samestep.tf_impl.models.transformer import Attend, Attention, Transformer
from samestep.tf_impl.rows.options import ContextOptions
from samestep.tf_impl.techniques.replica_collectives import Collectives, Replicas, replica_id


class Positions:
    """Which positions the replicas have, and their collectives; whole examples, as in evaluation, are not cut.

    Attributes:
        whole: The number of positions of an example.
    """

    def __init__(self, run: Run, strategy: tf.distribute.Strategy) -> None:
        """Makes what the collectives need.

        Args:
            run: What is trained.
            strategy: The strategy, outside of its scope.
        """
        self._mesh, self._count = run.mesh, run.mesh.axis("context")
        (self.whole,) = run.workload.model.inputs().shape
        self._replicas = Replicas(strategy, self._count)
        # Each replica is traced as often as the others, so the number of a call is the same for all.
        self._own: dict[int, Collectives] = {}

    def part(self) -> int:
        """Returns which part of the positions the current replica has."""
        return self._mesh.part(replica_id(), "positions")

    def rows(self, table: tf.Variable | tf.Tensor, tokens: int) -> tf.Variable | tf.Tensor:
        """Returns the rows of a table of positions for the current replica: [T, D] -> [t, D].

        Args:
            table: All rows.
            tokens: The number of positions of a replica.
        """
        return table if tokens == self.whole else tf.split(tf.convert_to_tensor(table), self._count)[self.part()]

    def collectives(self) -> Collectives:
        """Returns the collectives of the current replica with those that have the other positions of its examples."""
        replica = replica_id()
        if replica not in self._own:
            group = self._mesh.part(replica, "examples")
            self._own[replica] = self._replicas.collectives("context", group, "context")
        return self._own[replica]


class HeadExchange:
    """Attention on all positions of some heads, when the inputs are divided by positions."""

    def __init__(self, collectives: Callable[[], Collectives], count: int, attend: Attend) -> None:
        """Keeps what the exchange needs.

        Args:
            collectives: Returns the collectives of the current replica.
            count: The number of replicas that have the parts.
            attend: Attention on all positions.
        """
        self._collectives, self._count, self._attend = collectives, count, attend

    def __call__(self, q_BHtK: tf.Tensor, k_BHtK: tf.Tensor, v_BHtK: tf.Tensor) -> tf.Tensor:
        """Mixes values: [B, H, t, K] each -> [B, H, t, K].

        Args:
            q_BHtK: Queries.
            k_BHtK: Keys.
            v_BHtK: Values.
        """
        count, (heads, tokens, width) = self._count, q_BHtK.shape[1:]
        exchange = self._collectives().all_to_all
        # Queries, keys and values go together.
        parts = tf.reshape(tf.stack((q_BHtK, k_BHtK, v_BHtK)), (3, -1, count, heads // count, tokens, width))
        received_N3BhtK = exchange(tf.transpose(parts, (2, 0, 1, 3, 4, 5)))
        whole = tf.transpose(received_N3BhtK, (1, 2, 3, 0, 4, 5))
        q, k, v = tf.unstack(tf.reshape(whole, (3, -1, heads // count, count * tokens, width)))
        mixed = tf.reshape(self._attend(q, k, v), (-1, heads // count, count, tokens, width))
        received_NBhtK = exchange(tf.transpose(mixed, (2, 0, 1, 3, 4)))
        return tf.reshape(tf.transpose(received_NBhtK, (1, 0, 2, 3, 4)), (-1, heads, tokens, width))


def place_positions(model: Transformer, positions: Positions) -> None:
    """Sets which positions of the examples each replica of a model is given.

    Args:
        model: The model.
        positions: The positions of the replicas.
    """
    model.own_rows = positions.rows
    for each in (model.behind, *(behind for block in model.blocks for behind in block.behind)):
        each.part = positions.part
    for block in model.blocks:
        block.attention.own_rows = positions.rows


def attend_parts(
    attend: Attend, attend_whole: Attend, whole: int, q_BHtK: tf.Tensor, k_BHtK: tf.Tensor, v_BHtK: tf.Tensor
) -> tf.Tensor:
    """Mixes values: [B, H, t, K] each -> [B, H, t, K]; whole examples, as in evaluation, are not divided.

    Args:
        attend: Computes attention when positions are divided.
        attend_whole: Computes attention on whole examples.
        whole: The number of positions of an example.
        q_BHtK: Queries.
        k_BHtK: Keys.
        v_BHtK: Values.
    """
    return (attend_whole if q_BHtK.shape[2] == whole else attend)(q_BHtK, k_BHtK, v_BHtK)


def exchange_positions(
    run: Run[ContextOptions], model: Callable[..., tf.Tensor], strategy: tf.distribute.Strategy
) -> None:
    """Changes a model in place: each replica takes a part of the positions, and attention exchanges what the run asks for.

    Args:
        run: What is trained; without several replicas along `context` nothing changes.
        model: The model.
        strategy: The strategy, outside of its scope.
    """
    count = run.mesh.axis("context")
    if count == 1:
        return
    model, positions = cast(Transformer, model), Positions(run, strategy)  # other models are refused
    place_positions(model, positions)

    def exchanging(attention: Attention) -> Attend:
        if run.options.gathers_keys:
            return functools.partial(
                attend_to_all, lambda: Gather(positions.collectives(), count), positions.part, attention.mix
            )
        return HeadExchange(positions.collectives, count, attention.mix)

    for attention in (block.attention for block in model.blocks):
        attention.attend = functools.partial(attend_parts, exchanging(attention), attention.attend, positions.whole)
