"""Compressed exchanges between replicas, in place of the strategy's own; the twin of `common/reference/compression.py`.

They are collectives of ours in the context of a replica, each of all parameters together. TensorFlow's all-to-all takes no
numbers of one or two bytes (2.21), so some of them are packed into an int32.

References:
    tensorflow/core/ops/collective_ops.cc of TensorFlow 2.21.
"""

import functools
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from samestep.common.program import Arrays
from samestep.common.strategy import Run
from samestep.common.workload.compression import LARGEST, RESIDUAL, SUM_RESIDUAL, piece_size

HALVES = {"fp16": tf.float16, "bf16": tf.bfloat16}
PACKED_BYTES = 4
GROUP = 1 << 20
"""The key of our group; those of the strategies are small numbers (2.21)."""


class Compressor:
    """The exchanges of the replicas of one process, and what each keeps from one to the next."""

    def __init__(self, run: Run, strategy: tf.distribute.Strategy, params: Mapping[str, tf.Variable]) -> None:
        self._strategy, self._ranks = strategy, run.num_devices
        self._half = HALVES.get(str(run.techniques.compress))
        self._shapes = {name: tuple(variable.shape) for name, variable in params.items()}
        self._pieces = [piece_size(variable.shape.num_elements(), self._ranks) for variable in params.values()]
        self._owners = np.repeat(np.arange(len(self._pieces)), self._pieces)
        """The parameter of each number of a row."""
        row = sum(self._pieces)
        shapes = {} if self._half else {RESIDUAL: (self._ranks, row), SUM_RESIDUAL: (row,)}
        with strategy.scope():
            self.kept = {kind: _of_each_replica(tf.zeros(shape, run.dtype)) for kind, shape in shapes.items()}
            # A collective without one is never met by those of the other replicas (2.21).
            self._token = _of_each_replica(tf.zeros(()))

    def exchange(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums the gradients of all replicas; to be called on each of them.

        Args:
            gradients: In the order of the parameters.
        """
        rows = tf.concat([self._rows(gradient) for gradient in gradients], 1)
        collectives = _Collectives(self._ranks, self._token, "exchange")
        total = self._sum_of_int8(rows, collectives) if self._half is None else self._sum_of_halves(rows, collectives)
        return [self._whole(part, gradient.shape) for part, gradient in zip(self._parts(total), gradients, strict=True)]

    def _rows(self, whole: tf.Tensor) -> tf.Tensor:
        """Cuts a tensor into a row for each replica, [replicas, piece], with zeros at the end."""
        size = whole.shape.num_elements()
        piece = piece_size(size, self._ranks)
        return tf.reshape(tf.pad(tf.reshape(whole, [-1]), [[0, piece * self._ranks - size]]), [self._ranks, piece])

    def _parts(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """Splits [..., numbers] by parameter."""
        return tf.split(rows, self._pieces, -1)

    def _whole(self, rows: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
        """Joins rows [replicas, piece] to a parameter."""
        return tf.reshape(tf.reshape(rows, [-1])[: int(np.prod(shape))], shape)

    def _sum_of_halves(self, rows: tf.Tensor, collectives: "_Collectives") -> tf.Tensor:
        """Sums rows [replicas, numbers] that are rounded before the sum and after it."""

        def rounded(values: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.cast(values, tf.float32), self._half)

        parts = tf.cast(collectives.to_owners(rounded(rows)), rows.dtype)
        own = functools.reduce(tf.add, tf.unstack(parts, self._ranks))
        return tf.cast(collectives.to_all(rounded(own)), rows.dtype)

    def _sum_of_int8(self, rows: tf.Tensor, collectives: "_Collectives") -> tf.Tensor:
        """Sums rows [replicas, numbers] that are sent as int8, and so is their sum."""
        residual, sum_residual = self.kept[RESIDUAL], self.kept[SUM_RESIDUAL]
        values = rows + residual
        largest = self._largest(values, collectives)
        scale = tf.gather(largest / LARGEST, self._owners)
        sent = quantise(values, tf.gather(LARGEST / largest, self._owners))
        residual.assign(values - sent * scale)
        received = tf.cast(collectives.to_owners(tf.cast(sent, tf.int8)), rows.dtype)
        total = tf.reduce_sum(received, 0) + sum_residual / scale
        largest = self._largest(total, collectives)
        sum_scale = tf.gather(largest / LARGEST, self._owners)
        whole = quantise(total, tf.gather(LARGEST / largest, self._owners))
        sum_residual.assign((total - whole * sum_scale) * scale)
        return tf.cast(collectives.to_all(tf.cast(whole, tf.int8)), rows.dtype) * (sum_scale * scale)

    def _largest(self, values: tf.Tensor, collectives: "_Collectives") -> tf.Tensor:
        """The largest absolute number of each parameter over all replicas; 127 where all are zero."""
        largest = collectives.maximum(tf.stack([tf.reduce_max(tf.abs(part)) for part in self._parts(values)]))
        return tf.where(largest == 0, tf.constant(LARGEST, largest.dtype), largest)

    def snapshot(self) -> tuple[Arrays, ...]:
        """Gathers what every replica of every process keeps."""
        local: tuple[Arrays, ...] = tuple({} for _ in range(self._ranks if self.kept else 0))
        for kind in self.kept:
            gathered = self._gathered(kind)
            # A residual of the sum is in pieces: all replicas' together are one, which the first has.
            for own, rows in zip(local, gathered if kind == RESIDUAL else gathered[None], strict=False):
                own |= {f"{kind}/{name}": whole for name, whole in self._by_parameter(rows)}
        return local

    def _by_parameter(self, rows: np.ndarray) -> list[tuple[str, np.ndarray]]:
        parts = np.split(rows, np.cumsum(self._pieces)[:-1], axis=1)
        named = zip(self._shapes.items(), parts, strict=True)
        return [(name, part.reshape(-1)[: int(np.prod(shape))].reshape(shape)) for (name, shape), part in named]

    def _gathered(self, kind: str) -> np.ndarray:
        """What every replica keeps of a kind: [replicas, ...]."""
        variable = self.kept[kind]

        def own() -> tf.Tensor:
            collectives = _Collectives(self._ranks, self._token, f"{kind} of all")
            return collectives.gather(tf.expand_dims(variable.read_value(), 0))

        run = tf.function(lambda: self._strategy.experimental_local_results(self._strategy.run(own)), autograph=False)
        return run()[0].numpy()

    def restore(self, local: Sequence[Arrays]) -> None:
        """Takes what every replica kept; nothing lets it start anew."""
        for kind, variable in self.kept.items():
            of_ranks = np.zeros((self._ranks, *variable.shape), variable.dtype.as_numpy_dtype)
            for rank, held in enumerate(local[: self._ranks if kind == RESIDUAL else 1]):
                whole = [held.get(f"{kind}/{name}", np.zeros(shape)) for name, shape in self._shapes.items()]
                rows = tf.concat([self._rows(tf.constant(value)) for value in whole], 1).numpy()
                of_ranks[rank if kind == RESIDUAL else slice(None)] = rows

            def assign(variable: tf.Variable = variable, of_ranks: np.ndarray = of_ranks) -> None:
                rank = tf.distribute.get_replica_context().replica_id_in_sync_group
                variable.assign(tf.gather(of_ranks, rank))

            tf.function(lambda assign=assign: self._strategy.run(assign), autograph=False)()


def _of_each_replica(value: tf.Tensor) -> tf.Variable:
    """Makes a variable of which each replica has its own."""
    aggregation, on_read = tf.VariableAggregation.NONE, tf.VariableSynchronization.ON_READ
    return tf.Variable(value, trainable=False, synchronization=on_read, aggregation=aggregation)


def quantise(values: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Rounds to whole numbers from -127 to 127, half to even.

    Args:
        values: The numbers.
        factors: 127 over the largest of them, for each.
    """
    return tf.round(values * factors)


class _Collectives:
    """The collectives of one replica in one function; each is known by its place in it."""

    def __init__(self, ranks: int, token: tf.Variable, function: str) -> None:
        self._ranks, self._token = ranks, token
        self._key = (
            zlib.crc32(function.encode()) >> 2
        )  # TensorFlow keeps the shape of what it has met under a key (2.21)

    def _options(self) -> dict[str, object]:
        self._key += 1
        keys = {"group_size": self._ranks, "group_key": GROUP, "instance_key": self._key}
        return {**keys, "ordering_token": [self._token.handle], "communication_hint": "ring"}

    def maximum(self, values: tf.Tensor) -> tf.Tensor:
        """The largest of each number over all replicas."""
        return tf.raw_ops.CollectiveReduceV2(input=values, merge_op="Max", final_op="Id", **self._options())

    def gather(self, values: tf.Tensor) -> tf.Tensor:
        """Joins the values of all replicas along their first dim."""
        return tf.raw_ops.CollectiveGatherV2(input=values, **self._options())

    def to_owners(self, rows: tf.Tensor) -> tf.Tensor:
        """Sends each replica its row, and returns those that this one is sent: [replicas, numbers]."""
        received = tf.raw_ops.CollectiveAllToAllV2(input=_packed(rows), **self._options())
        return _unpacked(received, rows)

    def to_all(self, own: tf.Tensor) -> tf.Tensor:
        """Gathers the row of each replica: [replicas, numbers]."""
        rows = tf.expand_dims(own, 0)
        return _unpacked(self.gather(_packed(rows)), rows)


def _packed(rows: tf.Tensor) -> tf.Tensor:
    """Packs [..., numbers] of one or two bytes into int32, with zeros at the end."""
    each, (count, size) = PACKED_BYTES // rows.dtype.size, rows.shape
    padded = tf.pad(rows, [[0, 0], [0, -size % each]])
    return tf.bitcast(tf.reshape(padded, [count, -(-size // each), each]), tf.int32)


def _unpacked(packed: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Inverts `_packed`."""
    return tf.reshape(tf.bitcast(packed, like.dtype), [packed.shape[0] or -1, _padded(like)])[:, : like.shape[1]]


def _padded(rows: tf.Tensor) -> int:
    each = PACKED_BYTES // rows.dtype.size
    return -(-rows.shape[1] // each) * each
