"""The recording of one process: what was seen of models and optimizers, read from the slots and written step by step."""

import contextlib
import dataclasses
import os
import platform
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import keras
import numpy as np
import tensorflow as tf

from samestep.common.steps.record import (
    SCHEMA,
    Phase,
    RecordedStep,
    RecordHeader,
    header_frame,
    rank_file,
    stats_dtype,
    step_frame,
)
from samestep.tf_impl.recording.slots import Counters, SeenStep, Slots
from samestep.tf_impl.recording.statistics import Statistics, unpack
from samestep.tf_impl.recording.tensors import SeenTensor, TensorTable, container_of


@dataclasses.dataclass(frozen=True)
class Options:
    """How a script is recorded.

    Attributes:
        out: The directory of the record.
        every: After the first steps, only every one of these is looked at.
        float64: Whether the script is run in float64.
        perturb: The seed of a perturbation of the initial weights in their last bit.
        stop_after: Steps after which the script is ended.
    """

    out: str
    every: int = 1
    float64: bool = False
    perturb: int | None = None
    stop_after: int | None = None


class Plan:
    """What is recorded of one optimizer."""

    def __init__(self, optimizer: Any, tensors: list[SeenTensor], num_replicas: int, is_float64: bool) -> None:
        """Prepares the statistics.

        Args:
            optimizer: Keras'.
            tensors: That it updates, and those that none does.
            num_replicas: In sync.
            is_float64: Whether to compute in float64.
        """
        self.optimizer, self.tensors, self.num_replicas = optimizer, tensors, num_replicas
        self.statistics = Statistics([each.layout for each in tensors], is_float64)
        self.place = {id(each.container): place for place, each in enumerate(tensors)}
        self.slots: dict[int, Slots] = {}
        self.scalars = scalars_of(optimizer)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those of gradients that can be seen."""
        return ("local", "gradient") if self.num_replicas > 1 else ("gradient",)

    def ordered(self, gradients: Any, variables: Any) -> list[Any]:
        """The gradients in the order of the tensors; None for those that are not there.

        Args:
            gradients: Of some of the variables.
            variables: These.
        """
        found: list[Any] = [None] * len(self.tensors)
        for gradient, variable in zip(gradients, variables, strict=True):
            place = self.place.get(id(container_of(variable)))
            if place is not None:
                found[place] = gradient
        return found


def scalars_of(optimizer: Any) -> dict[str, float]:
    """Every hyper-parameter of an optimizer that is a number, but its learning rate."""
    attributes = vars(getattr(optimizer, "inner_optimizer", optimizer))
    numbers = {name: value for name, value in attributes.items() if isinstance(value, bool | int | float)}
    return {name: float(value) for name, value in numbers.items() if name != "built" and not name.startswith("_")}


class Session:
    """Records the process."""

    def __init__(self, options: Options) -> None:
        """Has seen nothing yet.

        Args:
            options: How to record.
        """
        self.options = options
        self.table = TensorTable()
        self.plans: dict[int, Plan] = {}
        self.counters: dict[int, Counters] = {}
        self._new: list[tuple[Plan, int, list[Any]]] = []
        self._owners: dict[int, Any] = {}
        self._function: Any = None
        self._steppers = weakref.WeakSet[Any]()
        self._models = weakref.WeakSet[Any]()
        self._initial: dict[int, dict[int, np.ndarray]] = {}
        self._last: dict[int, np.ndarray] = {}
        self._files: dict[int, IO[bytes]] = {}
        self._header: tuple[SeenTensor, ...] = ()

    def see_model(self, model: Any) -> None:
        """Remembers a model that was called in training."""
        self._models.add(model)

    def counters_of(self, replica: int) -> Counters:
        """The counters of a replica."""
        if replica not in self.counters:
            self.counters[replica] = Counters(self.options.every)
        return self.counters[replica]

    def owner_of(self, optimizer: Any) -> Any:
        """The optimizer whose step it is: the one that scales the loss for another."""
        return self._owners.get(id(optimizer), optimizer)

    def plan_of(self, optimizer: Any, variables: Any = ()) -> Plan:
        """What is recorded of an optimizer.

        Args:
            optimizer: Keras'.
            variables: That it updates; only needed the first time.
        """
        optimizer = self.owner_of(optimizer)
        if id(optimizer) not in self.plans:
            if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
                self._owners[id(optimizer.inner_optimizer)] = optimizer
            for model in self._models:
                self.table.add_model(model)
            tensors = self.table.of_optimizer(variables)
            num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
            self.plans[id(optimizer)] = Plan(optimizer, tensors, num_replicas, self.options.float64)
        return self.plans[id(optimizer)]

    def slots_of(self, plan: Plan, replica: int) -> Slots:
        """The slots of an optimizer on a replica.

        Args:
            plan: Of the optimizer.
            replica: From 0.
        """
        if replica not in plan.slots:
            weights = [each.of_replica(replica) for each in plan.tensors]
            plan.slots[replica] = Slots(self.counters_of(replica), plan.statistics, weights, plan.phases)
            self._new.append((plan, replica, weights))
            with tf.init_scope():
                self.see_initial_weights()
        return plan.slots[replica]

    def see_initial_weights(self) -> None:
        """Computes the statistics of new variables, once they have values: those made in a graph get them after it is built."""
        for entry in list(self._new):
            plan, replica, weights = entry
            if all(weight.is_initialized() for weight in weights):
                self._new.remove(entry)
                words = plan.statistics([weight.read_value() for weight in weights]).numpy()
                for tensor, row in zip(plan.tensors, unpack(words, self.options.float64), strict=True):
                    self._initial.setdefault(replica, {}).setdefault(id(tensor.container), row)

    @contextlib.contextmanager
    def calling(self, function: Any) -> Iterator[None]:
        """Calls a tf.function, and reads the steps that it took.

        Args:
            function: It.
        """
        outer, self._function = self._function, function
        try:
            yield
        finally:
            self._function = outer
        if function in self._steppers:
            self.drain()

    def step_was_taken(self) -> None:
        """Reads the step at once, or where a graph is built, when it was called."""
        if tf.executing_eagerly():
            self.drain()
        elif self._function is not None:
            self._steppers.add(self._function)

    def drain(self) -> None:
        """Writes the steps that were taken since the last call."""
        seen: dict[int, list[tuple[SeenStep, Plan]]] = {}
        for plan in self.plans.values():
            for replica, slots in plan.slots.items():
                steps = slots.read(self.options.float64)
                seen.setdefault(replica, []).extend((step, plan) for step in steps)
        for replica, steps in seen.items():
            if steps and replica not in self._files:
                self._start(replica, steps[0][1])
            for step, plan in sorted(steps, key=lambda pair: pair[0].numbers["clock"]):
                self._write(replica, step, plan)

    def _start(self, replica: int, plan: Plan) -> None:
        self._header = self._header or tuple(self.table.tensors)
        header = RecordHeader(
            schema=SCHEMA,
            framework="tf",
            command=tuple(sys.orig_argv),
            directory=str(Path.cwd()),
            versions={"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__},
            environment={},
            rank=replica,
            world=plan.num_replicas,
            tensors=tuple(each.recorded for each in self._header),
            is_float64=self.options.float64,
            perturbed=self.options.perturb,
        )
        self._files[replica] = (Path(self.options.out) / rank_file(replica)).open("xb", buffering=0)
        self._files[replica].write(header_frame(header))
        self._last[replica] = self._empty()
        for place, tensor in enumerate(self._header):
            self._last[replica][place] = self._initial[replica].get(id(tensor.container), self._last[replica][place])
        self._files[replica].write(step_frame(RecordedStep(-1, stats={"weight": self._last[replica]})))

    def _empty(self) -> np.ndarray:
        empty = np.zeros(len(self._header), stats_dtype(self.options.float64))
        empty["projections"], empty["square"] = np.nan, np.nan
        return empty

    def _write(self, replica: int, step: SeenStep, plan: Plan) -> None:
        numbers, stats = step.numbers, None
        if step.stats is not None:
            places = {id(tensor.container): place for place, tensor in enumerate(self._header)}
            own = [places[id(tensor.container)] for tensor in plan.tensors]
            stats = {phase: self._empty() for phase in step.stats} | {"weight": self._last[replica]}
            for phase, rows in step.stats.items():
                stats[phase][own] = rows
        losses = (numbers["loss"] * plan.num_replicas,) if numbers["num_losses"] else ()
        recorded = RecordedStep(
            number=int(numbers["clock"]),
            losses=losses,
            rows=self.counters[replica].read_rows(int(numbers["rows_seen"])),
            scalars={"lr": numbers["lr"]} | plan.scalars,
            is_skipped=bool(numbers["is_skipped"]),
            stats=stats,
        )
        self._files[replica].write(step_frame(recorded))
        if self.options.stop_after is not None and recorded.number + 1 >= self.options.stop_after:
            os._exit(0)
