"""What is recorded of each optimizer: its tensors, and the slots of its replicas. What the script deletes is not kept alive."""

import gc
import math
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend import name_scope

from samestep.common.objects import objects_of
from samestep.common.steps.keras.followers import averages_of, find_followers
from samestep.common.steps.keras.scalars import scalars_of, written
from samestep.common.steps.record import Phase
from samestep.tf_impl.recording.slots import Slots
from samestep.tf_impl.recording.statistics import Statistics
from samestep.tf_impl.recording.tensors import TensorTable, TrackedTensor, container_of


class UpdatePlan:
    """What is recorded of one optimizer."""

    def __init__(
        self,
        number: int,
        optimizer: Any,
        held: Sequence[TrackedTensor],
        updated: Mapping[int, Any],
        num_replicas: int,
        is_scaled: bool,
    ) -> None:
        """Prepares the statistics.

        Args:
            number: The number of the optimizer, from 0.
            optimizer: The Keras optimizer; of one that scales the loss, the inner one; None if the script has none.
            held: The tensors that it updates, and those that no optimizer updates.
            updated: The variables that it updates, by the ids of those of TensorFlow.
            num_replicas: The number of replicas in sync.
            is_scaled: Whether another optimizer scales the loss, and leaves out updates.
        """
        self.number, self.held, self.num_replicas = number, held, num_replicas
        self.has_optimizer = optimizer is not None
        self.is_float64 = is_wide(held)
        self.statistics = Statistics([each.layout for each in held], self.is_float64)
        self.slots: dict[int, Slots] = {}
        self.scalars = {} if optimizer is None else scalars_of(optimizer, updated.values())
        self.num_batches = 1 if optimizer is None else optimizer.gradient_accumulation_steps or 1
        # The ids of what each update changes; None if some only accumulate gradients, or are left out.
        self.updated = frozenset(updated) if self.num_batches == 1 and not is_scaled else None
        self._places = {each.key: place for place, each in enumerate(held)}
        self.num_in_rows = 0  # of the gradients that the optimizer is given

    def numbers(self, lr: float, place: int) -> dict[str, float]:
        """Returns the numbers of the optimizer: "lr" for the first one of a step, "lr/1" for the second, like groups in torch.

        Args:
            lr: The learning rate; NaN where there is none.
            place: The place of the optimizer among those that take the step.
        """
        rates = {} if math.isnan(lr) else {"lr": lr if self.is_float64 else written(lr)}
        found = rates | self.scalars
        return {f"{name}/{place}": value for name, value in found.items()} if place else found

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of gradients that can be seen."""
        return ("local", "gradient") if self.num_replicas > 1 else ("gradient",)

    def ordered(self, gradients: Iterable[Any], variables: Iterable[Any]) -> list[Any]:
        """Returns the gradients in the order of the tensors; None for those that are not there.

        Args:
            gradients: The gradients of some of the variables.
            variables: These variables.
        """
        found: list[Any] = [None] * len(self.held)
        for gradient, variable in zip(gradients, variables, strict=True):
            place = self._places.get(id(container_of(variable)))
            if place is not None:
                found[place] = gradient
        return found


class Plans:
    """What is recorded of all optimizers."""

    def __init__(self, table: TensorTable) -> None:
        """Starts without plans.

        Args:
            table: The table of all tensors.
        """
        self.all: list[UpdatePlan] = []
        self._table, self._deleted = table, list[UpdatePlan]()
        self._of: dict[int, tuple[weakref.ref[Any] | None, UpdatePlan]] = {}
        self._inner: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}

    def owner_of(self, optimizer: Any) -> Any:
        """Returns the optimizer that scales the loss and makes another one take its steps; the given one if there is none.

        Args:
            optimizer: The Keras optimizer; None if the script has none.
        """
        made, owner = self._inner.get(id(optimizer), (None, None))
        return owner() if made and owner and made() is optimizer and owner() is not None else optimizer

    def of(self, optimizer: Any, variables: Iterable[Any], models: Iterable[Any]) -> UpdatePlan:
        """Returns what is recorded of an optimizer.

        Args:
            optimizer: The Keras optimizer; None if the script has none.
            variables: The variables that it updates.
            models: The models that are called in training.
        """
        owner = self.owner_of(optimizer)
        made, plan = self._of.get(id(owner), (None, None))
        if plan is None or (made and made() is not owner):
            plan = self._new(owner, list(variables), sorted(models, key=lambda each: each.name))
            made = None if owner is None else weakref.ref(owner, lambda _, plan=plan: self._end(plan))
            self.all.append(plan)
            self._of[id(owner)] = made, plan
        return plan

    def _new(self, owner: Any, own: list[Any], models: Sequence[Any]) -> UpdatePlan:
        if self.all:
            gc.collect()  # a model that is no longer trained is a cycle
        self._table.forget_deleted()
        inner = owner
        if isinstance(owner, keras.optimizers.LossScaleOptimizer):
            inner = owner.inner_optimizer
            self._inner[id(inner)] = weakref.ref(inner), weakref.ref(owner)
        ids, layers = {id(container_of(each)): each for each in own}, objects_of(keras.layers.Layer)
        self._table.add_followers(find_followers(layers, ids, models, container_of, _has_value), own)
        for model in models:
            self._table.add_model(model)
        held = self._table.of_optimizer(own, _averages_of(inner, own))
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return UpdatePlan(len(self.all), inner, held, ids, num_replicas, inner is not owner)

    def _end(self, plan: UpdatePlan) -> None:
        """Ends the plan of a deleted optimizer: what it has written can still be read, and its weights are not kept alive."""
        for slots in [*plan.slots.values()]:
            slots.forget_weights()
        self._deleted.append(plan)

    def forget_deleted(self) -> None:
        """Frees what deleted optimizers have written, after all of it was read."""
        while self._deleted:
            plan = self._deleted.pop()
            plan.slots, plan.statistics = {}, None  # pyrefly: ignore[bad-assignment]  # they are no longer read


def _has_value(variable: Any) -> bool:
    container = container_of(variable)
    with tf.init_scope():
        return container is not None and bool(container.is_initialized())


def _averages_of(optimizer: Any, own: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Returns the variables that an optimizer is about to update, each with the average that the optimizer keeps of it."""
    if optimizer is None or not own or not optimizer.use_ema:
        return []
    if not optimizer.built:
        with name_scope(optimizer.name, caller=optimizer):
            optimizer.build([*own])  # as its step would
    return [*averages_of(optimizer)]


def is_wide(held: Iterable[TrackedTensor]) -> bool:
    """Returns whether all tensors are float64."""
    return all(each.tensor.dtype == "float64" for each in held)
