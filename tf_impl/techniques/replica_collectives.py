"""Our own collectives between replicas, in the context of each replica, in addition to those of their strategy.

TensorFlow's all-to-all takes no numbers of one or two bytes (2.21), so some of them are packed into an int32.

References:
    tensorflow/core/ops/collective_ops.cc of TensorFlow 2.21.
"""

import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

PACKED_BYTES = 4
GROUP = 1 << 20
"""The key of our group; those of the strategies are small numbers (2.21)."""
ALONG = "along_"
"""The prefix of the name of a collective along an axis of the mesh."""


def replica_id() -> int:
    """Returns the number of the replica whose part of a step is traced."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return replica if isinstance(replica, int) else int(tf.get_static_value(replica))


class Replicas:
    """All replicas of a strategy, over all its processes: variables of which each has its own copy, and their collectives."""

    def __init__(self, strategy: tf.distribute.Strategy, count: int) -> None:
        """Makes what their collectives need.

        Args:
            strategy: The strategy, outside of its scope.
            count: The number of replicas.
        """
        self._strategy, self.count = strategy, count
        self._token = self.variable(tf.zeros(()))

    def variable(self, value: tf.Tensor) -> tf.Variable:
        """Makes a variable of which each replica has its own copy."""
        aggregation, on_read = tf.VariableAggregation.NONE, tf.VariableSynchronization.ON_READ
        with self._strategy.scope():
            return tf.Variable(value, trainable=False, synchronization=on_read, aggregation=aggregation)

    def collectives(self, function: str, group: int = 0, axis: str = "") -> "Collectives":
        """Returns the collectives of a replica in a function.

        Args:
            function: The name of the function.
            group: The number of the group, if the replicas are in several.
            axis: The axis of the mesh along which they go; "" if they go over all replicas.
        """
        return Collectives(self.count, self._token, function, group, axis)

    def read(self, variable: tf.Variable, name: str) -> np.ndarray:
        """Gathers a variable from all replicas: [replicas, ...].

        Args:
            variable: The variable of each replica.
            name: The name of the exchange, unique and the same in all processes.
        """
        return self.gather(variable.read_value, name)

    def gather(self, read: Callable[[], tf.Tensor], name: str) -> np.ndarray:
        """Gathers what each replica reads: [replicas, ...].

        Args:
            read: Returns what a replica contributes; called on each replica.
            name: The name of the exchange, unique and the same in all processes.
        """

        def own() -> tf.Tensor:
            return self.collectives(name).gather(tf.expand_dims(read(), 0))

        run = tf.function(lambda: self._strategy.experimental_local_results(self._strategy.run(own)), autograph=False)
        return run()[0].numpy()

    def write(self, variable: tf.Variable, values: np.ndarray) -> None:
        """Assigns each replica its own value.

        Args:
            variable: The variable of each replica.
            values: [replicas, ...].
        """

        def assign() -> None:
            rank = tf.distribute.get_replica_context().replica_id_in_sync_group
            variable.assign(tf.gather(tf.constant(values, variable.dtype), rank))

        tf.function(lambda: self._strategy.run(assign), autograph=False)()


class Collectives:
    """The collectives of one replica in one function; each is identified by its place in the function."""

    def __init__(self, ranks: int, token: tf.Variable, function: str, group: int, axis: str) -> None:
        """Begins to count the collectives of a function.

        Args:
            ranks: The number of replicas, over all processes.
            token: The token of each replica; a collective without one is never met by those of the other replicas (2.21).
            function: The name of the function, the same on all replicas.
            group: The number of the group.
            axis: As in `Replicas.collectives`; in a graph, it is part of their names.
        """
        self._ranks, self._token, self._group = ranks, token, GROUP + group
        self._name = {"name": f"{ALONG}{axis}"} if axis else {}
        # TensorFlow keeps the shape of what it has met under a key (2.21).
        self._key = zlib.crc32(function.encode()) >> 2

    def _options(self) -> dict[str, object]:
        self._key += 1
        keys = {"group_size": self._ranks, "group_key": self._group, "instance_key": self._key}
        return {**keys, **self._name, "ordering_token": [self._token.handle], "communication_hint": "ring"}

    def maximum(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the largest of each number over all replicas."""
        return tf.raw_ops.CollectiveReduceV2(input=values, merge_op="Max", final_op="Id", **self._options())

    def total(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the sum of each number over all replicas."""
        return tf.raw_ops.CollectiveReduceV2(input=values, merge_op="Add", final_op="Id", **self._options())

    def gather(self, values: tf.Tensor) -> tf.Tensor:
        """Joins the values of all replicas along their first dim."""
        return tf.raw_ops.CollectiveGatherV2(input=values, **self._options())

    def to_owners(self, rows: tf.Tensor) -> tf.Tensor:
        """Sends each replica its row, and returns the rows that this replica receives: [replicas, numbers]."""
        received = tf.raw_ops.CollectiveAllToAllV2(input=_packed(rows), **self._options())
        return _unpacked(received, rows)

    def all_to_all(self, parts: tf.Tensor) -> tf.Tensor:
        """Sends each replica its part of [replicas * n, ...], and returns those that this one receives; so does its gradient."""

        def exchanged(x: tf.Tensor) -> tf.Tensor:
            return tf.reshape(self.to_owners(tf.reshape(x, (self._ranks, -1))), x.shape)

        @tf.custom_gradient
        def exchange(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return exchanged(x), exchanged

        return exchange(parts)

    def to_all(self, own: tf.Tensor) -> tf.Tensor:
        """Gathers the row of each replica: [replicas, numbers]."""
        rows = tf.expand_dims(own, 0)
        return _unpacked(self.gather(_packed(rows)), rows)


def _packed(rows: tf.Tensor) -> tf.Tensor:
    """Packs [..., numbers] of one or two bytes into int32, with zeros at the end; larger ones stay as they are."""
    if rows.dtype.size >= PACKED_BYTES:
        return rows
    each, (count, size) = PACKED_BYTES // rows.dtype.size, rows.shape
    padded = tf.pad(rows, [[0, 0], [0, -size % each]])
    return tf.bitcast(tf.reshape(padded, [count, -(-size // each), each]), tf.int32)


def _unpacked(packed: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Inverts `_packed`."""
    if packed.dtype == like.dtype:
        return packed
    return tf.reshape(tf.bitcast(packed, like.dtype), [packed.shape[0] or -1, _padded(like)])[:, : like.shape[1]]


def _padded(rows: tf.Tensor) -> int:
    each = PACKED_BYTES // rows.dtype.size
    return -(-rows.shape[1] // each) * each
