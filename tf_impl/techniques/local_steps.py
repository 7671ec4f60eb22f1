"""Local steps of a replica, and the joint step of each period; the counterpart of `common/techniques/local_steps/statement.py`.

A mirrored variable has a copy on each replica, and an update with each replica's own gradient moves each copy separately.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from samestep.common.ledger import Send
from samestep.common.program import OUTER, SHARED, WEIGHT, Arrays, TrainState
from samestep.common.strategy import Run
from samestep.common.techniques.local_steps.ranks import of_kind, pack
from samestep.tf_impl.observing.exchanges import sends_of
from samestep.tf_impl.techniques.replica_collectives import Replicas

Slots = Mapping[str, Mapping[str, tf.Variable]]
"""Optimizer state, by its name and that of the parameter."""


class RankSteps:
    """A `GradientExchange` that exchanges no gradient: replicas follow their own, and average weights at the end of a period.

    Attributes:
        kept: What the outer step needs for each parameter: the weights that the period began with, and its momentum.
    """

    def __init__(
        self, run: Run, strategy: tf.distribute.Strategy, params: Mapping[str, tf.Variable], slots: Slots
    ) -> None:
        self._techniques, self._strategy, self._params = run.techniques, strategy, params
        self._axis = run.mesh.only_axis
        self._replicas = Replicas(strategy, run.num_devices)
        self.kept: dict[str, tf.Variable] = {}
        for name, variable in params.items():
            if run.techniques.keeps_shared:
                self.kept[f"{SHARED}/{name}"] = self._replicas.variable(tf.convert_to_tensor(variable))
            if run.techniques.outer_momentum:
                self.kept[f"{OUTER}/{name}"] = self._replicas.variable(tf.zeros_like(variable))
        self._held = {f"{WEIGHT}/{name}": variable for name, variable in params.items()}
        self._held |= {f"{slot}/{name}": each for slot, named in slots.items() for name, each in named.items()}
        self.meet = tf.function(lambda: strategy.run(self._meet), autograph=False)

    def exchange(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the gradient of the mean over this replica's shard, given its part of that over the whole batch."""
        return [gradient * self._replicas.count for gradient in gradients]

    def after_update(self, step: int) -> None:
        """Takes the joint step of all replicas if a period ends.

        Args:
            step: The number of the step that was taken, counted from 1.
        """
        if step % self._techniques.steps_of_period == 0:
            self.meet()

    def _meet(self) -> None:
        """Takes the joint step on one replica."""
        own = [variable.read_value() for variable in self._params.values()]
        flat = tf.concat([tf.reshape(value, [-1]) for value in own], 0)
        mean = self._replicas.collectives("meet").total(flat) / self._replicas.count
        parts = tf.split(mean, [value.shape.num_elements() for value in own])
        moved = [
            self._outer_step(name, tf.reshape(part, value.shape))
            for name, part, value in zip(self._params, parts, own, strict=True)
        ]
        tf.distribute.get_replica_context().merge_call(_assign, args=(list(self._params.values()), moved))

    def _outer_step(self, name: str, mean: tf.Tensor) -> tf.Tensor:
        shared, momentum = (self.kept.get(f"{kind}/{name}") for kind in (SHARED, OUTER))
        if shared is None:
            return mean
        begun, factor = shared.read_value(), self._techniques.outer_momentum
        gradient = begun - mean
        if momentum is not None:
            total = factor * momentum.read_value() + gradient
            momentum.assign(total)
            gradient += factor * total
        after = begun - self._techniques.outer_rate * gradient
        shared.assign(after)
        return after

    def sends(self) -> tuple[Send, ...]:
        """Returns what a replica takes part in at the end of a period."""
        found = sends_of(self.meet.get_concrete_function().graph, self._axis, self._replicas.count)
        return tuple(dataclasses.replace(send, phase="update") for send in found)

    def snapshot(self) -> tuple[Arrays, ...]:
        """Gathers the local state of every replica of every process."""
        every = self._held | self.kept

        def flat() -> tf.Tensor:
            return tf.concat([tf.reshape(tf.cast(each.read_value(), tf.float64), [-1]) for each in every.values()], 0)

        rows = self._replicas.gather(flat, "apart")
        ends = np.cumsum([variable.shape.num_elements() for variable in every.values()])
        of_ranks = [
            {
                key: part.reshape(variable.shape).astype(variable.dtype.as_numpy_dtype)
                for (key, variable), part in zip(every.items(), np.split(row, ends[:-1]), strict=True)
            }
            for row in rows
        ]
        slots = dict.fromkeys(key.partition("/")[0] for key in self._held if not key.startswith(f"{WEIGHT}/"))
        states = [TrainState(0, of_kind(own, WEIGHT), {slot: of_kind(own, slot) for slot in slots}) for own in of_ranks]
        return pack(states, of_kind(of_ranks[0], SHARED), of_kind(of_ranks[0], OUTER))

    def restore(self, local: Sequence[Arrays]) -> None:
        """Restores what every replica had; without it, each begins a period with the weights that it has."""
        first = local[0] if local else {}
        for key, variable in self.kept.items():
            kind, _, name = key.partition("/")
            begun = self._params[name].numpy() if kind == SHARED else np.zeros(variable.shape)
            self._replicas.write(variable, np.stack([first.get(key, begun)] * self._replicas.count))
        own = {key: each for key, each in self._held.items() if key in first}
        values = [tf.constant(np.stack([arrays[key] for arrays in local]), each.dtype) for key, each in own.items()]

        def assign() -> None:
            place = tf.distribute.get_replica_context().replica_id_in_sync_group
            taken = [tf.gather(value, place) for value in values]
            tf.distribute.get_replica_context().merge_call(_assign, args=(list(own.values()), taken))

        if own:
            tf.function(lambda: self._strategy.run(assign), autograph=False)()


def _assign(strategy: tf.distribute.Strategy, variables: Iterable[tf.Variable], values: Iterable[tf.Tensor]) -> None:
    """Assigns to each replica's copy of some variables the values that the replica computed."""
    for variable, value in zip(variables, values, strict=True):
        strategy.extended.update(variable, lambda copy, own: copy.assign(own), args=(value,), group=False)
