"""Exchanges in two halves: each replica adds up a piece of every gradient, and sends the sum to all; fp16, bf16 and int8."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from samestep.common.program import RESIDUAL, SUM_RESIDUAL, Arrays
from samestep.common.strategy import Run
from samestep.common.techniques.compress.pieces import piece_size
from samestep.common.techniques.compress.statement import LARGEST
from samestep.tf_impl.techniques.replica_collectives import Collectives, Replicas

HALVES = {"fp16": tf.float16, "bf16": tf.bfloat16}


class Pieces:
    """A `GradientExchange` that sends every number, rounded before the sum and after it."""

    def __init__(self, run: Run, replicas: Replicas, params: Mapping[str, tf.Variable]) -> None:
        self._replicas, self._ranks = replicas, run.num_devices
        self._half = HALVES.get(str(run.techniques.compress))
        self._shapes = {name: tuple(variable.shape) for name, variable in params.items()}
        self._pieces = [piece_size(variable.shape.num_elements(), self._ranks) for variable in params.values()]
        self._owners = np.repeat(np.arange(len(self._pieces)), self._pieces)
        """The parameter of each number of a row."""
        row = sum(self._pieces)
        shapes = {} if self._half else {RESIDUAL: (self._ranks, row), SUM_RESIDUAL: (row,)}
        self.kept = {kind: replicas.variable(tf.zeros(shape, run.dtype)) for kind, shape in shapes.items()}

    def exchange(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums the gradients of all replicas; must be called on each replica.

        Args:
            gradients: The gradients in the order of the parameters.
        """
        rows = tf.concat([self._rows(gradient) for gradient in gradients], 1)
        collectives = self._replicas.collectives("exchange")
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
        """Joins rows [replicas, piece] into the shape of a parameter."""
        return tf.reshape(tf.reshape(rows, [-1])[: int(np.prod(shape))], shape)

    def _sum_of_halves(self, rows: tf.Tensor, collectives: Collectives) -> tf.Tensor:
        """Sums rows [replicas, numbers] that are rounded before the sum and after it."""

        def rounded(values: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.cast(values, tf.float32), self._half)

        parts = tf.cast(collectives.to_owners(rounded(rows)), rows.dtype)
        own = functools.reduce(tf.add, tf.unstack(parts, self._ranks))
        return tf.cast(collectives.to_all(rounded(own)), rows.dtype)

    def _sum_of_int8(self, rows: tf.Tensor, collectives: Collectives) -> tf.Tensor:
        """Sums rows [replicas, numbers] that are sent as int8, and so is their sum."""
        residual, sum_residual = self.kept[RESIDUAL], self.kept[SUM_RESIDUAL]
        values = rows + residual
        largest = self._largest(values, collectives)
        scale = tf.gather(largest / LARGEST, self._owners)
        sent = quantize(values, tf.gather(LARGEST / largest, self._owners))
        residual.assign(values - sent * scale)
        received = tf.cast(collectives.to_owners(tf.cast(sent, tf.int8)), rows.dtype)
        total = tf.reduce_sum(received, 0) + sum_residual / scale
        largest = self._largest(total, collectives)
        sum_scale = tf.gather(largest / LARGEST, self._owners)
        whole = quantize(total, tf.gather(LARGEST / largest, self._owners))
        sum_residual.assign((total - whole * sum_scale) * scale)
        return tf.cast(collectives.to_all(tf.cast(whole, tf.int8)), rows.dtype) * (sum_scale * scale)

    def _largest(self, values: tf.Tensor, collectives: Collectives) -> tf.Tensor:
        """Returns the largest absolute number of each parameter over all replicas; 127 where all are zero."""
        largest = collectives.maximum(tf.stack([tf.reduce_max(tf.abs(part)) for part in self._parts(values)]))
        return tf.where(largest == 0, tf.constant(LARGEST, largest.dtype), largest)

    def snapshot(self) -> tuple[Arrays, ...]:
        """Gathers what every replica of every process keeps."""
        local: tuple[Arrays, ...] = tuple({} for _ in range(self._ranks if self.kept else 0))
        for kind, variable in self.kept.items():
            gathered = self._replicas.read(variable, kind)
            # A residual of the sum is in pieces: all replicas' together are one, which the first has.
            for own, rows in zip(local, gathered if kind == RESIDUAL else gathered[None], strict=False):
                own |= {f"{kind}/{name}": whole for name, whole in self._by_parameter(rows)}
        return local

    def _by_parameter(self, rows: np.ndarray) -> list[tuple[str, np.ndarray]]:
        parts = np.split(rows, np.cumsum(self._pieces)[:-1], axis=1)
        named = zip(self._shapes.items(), parts, strict=True)
        return [(name, part.reshape(-1)[: int(np.prod(shape))].reshape(shape)) for (name, shape), part in named]

    def restore(self, local: Sequence[Arrays]) -> None:
        """Restores what every replica kept; without it, resets the residuals."""
        for kind, variable in self.kept.items():
            of_ranks = np.zeros((self._ranks, *variable.shape), variable.dtype.as_numpy_dtype)
            for rank, held in enumerate(local[: self._ranks if kind == RESIDUAL else 1]):
                whole = [held.get(f"{kind}/{name}", np.zeros(shape)) for name, shape in self._shapes.items()]
                rows = tf.concat([self._rows(tf.constant(value)) for value in whole], 1).numpy()
                of_ranks[rank if kind == RESIDUAL else slice(None)] = rows
            self._replicas.write(variable, of_ranks)


def quantize(values: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Rounds to whole numbers from -127 to 127, half to even.

    Args:
        values: The numbers.
        factors: 127 over the largest of them, for each.
    """
    return tf.round(values * factors)
