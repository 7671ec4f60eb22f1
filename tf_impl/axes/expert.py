"""The axis `expert`: every replica has a part of the experts of each block, and its own examples.

Each token is sent to the replicas that have its experts, and the outputs are sent back, by all-to-alls that drop no token.
TensorFlow's all-to-all takes equal parts of a static size (2.21), so a part has room for all tokens of a replica, padded with
zeros. A replica computes its experts on the tokens of all replicas, in the order of the examples, as one device does.

Shape suffixes: S slots of a replica, a token and an expert that it takes; R = N S slots of N replicas; D width, E experts, e
experts of a replica.

References:
    Lepikhin et al., arXiv 2006.16668 (GShard, of which each part has room for some tokens, and drops the others).
"""

from collections.abc import Callable, Collection, Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.models.transformer import Transformer
from samestep.tf_impl.techniques.replica_collectives import Collectives, Replicas, replica_id
from samestep.tf_impl.weights import make_variable

Compute = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(inputs of the experts in order [S, D], number of inputs of each [E]) -> their outputs [S, D]."""


class ExpertParts:
    """The parts of experts that the replicas of a strategy hold, and their exchanges.

    Attributes:
        divided: The names of the parameters of experts.
    """

    def __init__(self, run: Run, strategy: tf.distribute.Strategy) -> None:
        """Makes what the collectives need.

        Args:
            run: What is trained.
            strategy: The strategy, outside of its scope.
        """
        self._mesh, self._count = run.mesh, run.mesh.axis("expert")
        params = run.workload.model.params()
        self.divided: Collection[str] = {name for name in params if params[name].stacked} if self._count > 1 else ()
        self._strategy = strategy
        self._along = {axis: Replicas(strategy, run.mesh.axis(axis)) for axis in ("expert", "data")}
        # Each replica is traced as often as the others, so the number of a call is the same for all.
        self._own: dict[tuple[str, int], Collectives] = {}

    def make(self, value: np.ndarray, name: str) -> tf.Variable:
        """Makes a variable in the strategy's scope; for parameters of experts, each replica makes its own part.

        Args:
            value: The whole initial value.
            name: The neutral name.
        """
        if name not in self.divided:
            return make_variable(value, name)
        variable = self._along["expert"].variable(value[: len(value) // self._count])
        self.write(variable, value)
        return variable

    def write(self, variable: tf.Variable, value: np.ndarray) -> None:
        """Assigns a whole value; for parameters of experts, to each replica its own part."""
        if variable.synchronization is not tf.VariableSynchronization.ON_READ:
            variable.assign(value)
            return
        parts = np.split(value, self._count)
        for replica, own in enumerate(self._strategy.experimental_local_results(variable)):
            own.assign(parts[self._mesh.part(replica, "stacked")])

    def read(self, variable: tf.Variable) -> np.ndarray:
        """Returns a whole value; for parameters of experts, from the first replicas that together have all parts."""
        if variable.synchronization is not tf.VariableSynchronization.ON_READ:
            return variable.numpy()
        own = self._strategy.experimental_local_results(variable)
        return np.concatenate([each.numpy() for each in own[: self._count]])

    def sum_divided(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Sums the gradients of experts over the replicas that have the same experts, in one piece.

        Args:
            gradients: The gradients of all parameters, by name.
        """
        own = {name: each for name, each in gradients.items() if name in self.divided}
        if self._mesh.data == 1 or not own:
            return gradients
        flat = tf.concat([tf.reshape(each, [-1]) for each in own.values()], 0)
        parts = tf.split(self._collectives("data").total(flat), [each.shape.num_elements() for each in own.values()])
        return gradients | {name: tf.reshape(part, own[name].shape) for name, part in zip(own, parts, strict=True)}

    def sum_squares(self, names: Sequence[str], squares: Sequence[tf.Tensor]) -> tf.Tensor:
        """Adds up the squares of a whole gradient, for experts over all replicas along the axis.

        Args:
            names: The names of the parameters.
            squares: The sum of squares of what a replica has of each parameter's gradient.
        """
        of_experts, shared = (
            tf.add_n([each for name, each in zip(names, squares, strict=True) if (name in self.divided) == is_divided])
            for is_divided in (True, False)
        )
        return shared + self._collectives("expert").total(of_experts[None])[0]

    def around(self, compute: Compute) -> Compute:
        """Wraps the computation of one replica's experts with the exchange of tokens, so it becomes that of all experts."""

        def exchanging(x_SD: tf.Tensor, counts_E: tf.Tensor) -> tf.Tensor:
            count, (slots, width), collectives = self._count, x_SD.shape, self._collectives("expert")
            counts_Ne, numbers_S = tf.reshape(counts_E, (count, -1)), tf.range(slots)
            each = counts_Ne.shape[1]
            ranks_S = tf.searchsorted(tf.cumsum(counts_E), numbers_S, side="right") // each
            first_N = tf.cumsum(tf.reduce_sum(counts_Ne, 1), exclusive=True)
            places_S = ranks_S * slots + numbers_S - tf.gather(first_N, ranks_S)
            sent_RD = tf.scatter_nd(places_S[:, None], x_SD, (count * slots, width))
            counted_Ne = collectives.to_owners(tf.cast(counts_Ne, tf.int64))
            received_Ne = tf.cast(counted_Ne, tf.int32)
            ends_Ne = tf.cumsum(received_Ne, axis=1)
            experts_NS = tf.searchsorted(ends_Ne, tf.tile(numbers_S[None], (count, 1)), side="right")  # e where unused
            order_R = tf.argsort(tf.reshape(experts_NS, [-1]), stable=True)
            out_RD = compute(tf.gather(collectives.all_to_all(sent_RD), order_R), tf.reduce_sum(received_Ne, 0))
            return tf.gather(collectives.all_to_all(tf.gather(out_RD, tf.math.invert_permutation(order_R))), places_S)

        return exchanging

    def _collectives(self, axis: str) -> Collectives:
        """Returns the collectives of the current replica along an axis; the groups of the two axes have different numbers."""
        replica, own = replica_id(), self._mesh.part(replica_id(), "stacked")
        if (axis, replica) not in self._own:
            group = self._mesh.part(replica, "examples") // self._count if axis == "expert" else self._mesh.data + own
            self._own[axis, replica] = self._along[axis].collectives(axis, group, axis)
        return self._own[axis, replica]


def exchange_tokens(model: Callable[..., tf.Tensor], parts: ExpertParts) -> None:
    """Changes a model in place to send tokens to the replicas that have their experts.

    Args:
        model: The model; without several replicas along `expert` nothing changes.
        parts: The parts with which it was made.
    """
    for block in cast(Transformer, model).blocks if parts.divided else ():
        block.mlp.compute = parts.around(block.mlp.compute)  # pyrefly: ignore[missing-attribute, bad-assignment]
