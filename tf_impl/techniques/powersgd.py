"""PowerSGD: sends two low-rank factors of the gradient of a matrix, and adds their error to the next gradient."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from samestep.common.program import RESIDUAL, Arrays
from samestep.common.strategy import Run
from samestep.common.techniques.compress.pieces import matrix_shape
from samestep.common.techniques.compress.statement import FACTOR, LEAST_COLUMN, initial_factor
from samestep.tf_impl.techniques.pieces import Pieces
from samestep.tf_impl.techniques.replica_collectives import Collectives, Replicas


class Factors:
    """A `GradientExchange` that sends factors; other gradients are sent as they are."""

    def __init__(self, run: Run, replicas: Replicas, params: Mapping[str, tf.Variable]) -> None:
        rank = run.techniques.compress_rank
        self._replicas, self._whole = replicas, {name: tuple(variable.shape) for name, variable in params.items()}
        self._matrices = {name: matrix_shape(shape, rank) for name, shape in self._whole.items()}
        shapes = {name: shape for name, shape in self._matrices.items() if shape is not None}
        self._initial = {name: initial_factor(name, (shape[1], rank), run.seed) for name, shape in shapes.items()}
        self.kept: dict[str, tf.Variable] = {}
        for name, (rows, columns) in shapes.items():
            self.kept[f"{RESIDUAL}/{name}"] = replicas.variable(tf.zeros((rows, columns), run.dtype))
            self.kept[f"{FACTOR}/{name}"] = replicas.variable(tf.zeros((columns, rank), run.dtype))

    def exchange(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums the gradients of all replicas; must be called on each replica.

        Args:
            gradients: The gradients in the order of the parameters.
        """
        collectives = self._replicas.collectives("exchange")
        named = dict(zip(self._whole, gradients, strict=True))
        whole = {name: gradient for name, gradient in named.items() if self._matrices[name] is None}
        total = dict(zip(whole, _summed(list(whole.values()), collectives), strict=True))
        matrices = {
            name: tf.reshape(named[name], shape) + self.kept[f"{RESIDUAL}/{name}"]
            for name, shape in self._matrices.items()
            if shape is not None
        }
        rights = {name: orthogonalise(self._factor(name)) for name in matrices}
        lefts = _summed([matrix @ rights[name] for name, matrix in matrices.items()], collectives)
        lefts = list(map(orthogonalise, lefts))
        sums = _summed(
            [tf.matmul(matrix, left, True) for matrix, left in zip(matrices.values(), lefts, strict=True)], collectives
        )
        for (name, matrix), left, right in zip(matrices.items(), lefts, sums, strict=True):
            summed = tf.matmul(left, right, transpose_b=True)
            self.kept[f"{FACTOR}/{name}"].assign(right)
            self.kept[f"{RESIDUAL}/{name}"].assign(matrix - summed / self._replicas.count)
            total[name] = tf.reshape(summed, self._whole[name])
        return [total[name] for name in self._whole]

    def _factor(self, name: str) -> tf.Tensor:
        """Returns the factor to start from; a column that has become zero is reset to its initial value."""
        kept = self.kept[f"{FACTOR}/{name}"].read_value()
        return tf.where(tf.reduce_any(kept != 0, 0), kept, tf.constant(self._initial[name], kept.dtype))

    def snapshot(self) -> tuple[Arrays, ...]:
        """Gathers what every replica of every process keeps; the first has the factors."""
        local: tuple[Arrays, ...] = tuple({} for _ in range(self._replicas.count))
        for key, variable in self.kept.items():
            kind, _, name = key.partition("/")
            values = self._replicas.read(variable, key)
            for own, value in zip(local if kind == RESIDUAL else local[:1], values, strict=False):
                own[key] = value.reshape(self._whole[name]) if kind == RESIDUAL else value
        return local

    def restore(self, local: Sequence[Arrays]) -> None:
        """Restores what every replica kept; without it, resets the factors and residuals."""
        for key, variable in self.kept.items():
            values = np.zeros((self._replicas.count, *variable.shape), variable.dtype.as_numpy_dtype)
            for rank, held in enumerate(local if key.startswith(RESIDUAL) else [*local[:1]] * self._replicas.count):
                if key in held and held[key].size == values[rank].size:
                    values[rank] = held[key].reshape(values[rank].shape)
            self._replicas.write(variable, values)


def _summed(parts: Sequence[tf.Tensor], collectives: Collectives) -> list[tf.Tensor]:
    """Sums some tensors over all replicas, in one all-reduce."""
    if not parts:
        return []
    total = collectives.total(tf.concat([tf.reshape(part, [-1]) for part in parts], 0))
    each = tf.split(total, [part.shape.num_elements() for part in parts])
    return [tf.reshape(one, part.shape) for one, part in zip(each, parts, strict=True)]


def orthogonalise(matrix: tf.Tensor) -> tf.Tensor:
    """Makes columns orthonormal, one after the other; those far shorter than the first are zero."""
    least = LEAST_COLUMN * tf.norm(matrix[:, 0])
    rest, done = matrix, []
    for _ in range(matrix.shape[1]):
        norm = tf.norm(rest[:, :1])
        column = tf.where(norm > least, rest[:, :1] / norm, tf.zeros_like(rest[:, :1]))
        rest = rest[:, 1:] - column @ tf.matmul(column, rest[:, 1:], True)
        done.append(column)
    return tf.concat(done, 1)


def kind_of(run: Run) -> type[Pieces | Factors]:
    """Returns the class that exchanges the gradients of a run that compresses them."""
    return Factors if run.techniques.compress == "powersgd" else Pieces
