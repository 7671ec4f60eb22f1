"""The training step of the oracle, in NumPy float64."""

import numpy as np

from samestep.common.batch import Batch
from samestep.common.features.used import initial_buffers
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Arrays, Hardware, PlainProgram, TrainState
from samestep.common.reference.features.applied import examples_together, move_buffers
from samestep.common.reference.models import build_model
from samestep.common.reference.models.losses import LOSSES
from samestep.common.reference.periods import copied, rank_programs
from samestep.common.reference.step import accumulate, parts_of, transform
from samestep.common.reference.step_context import StepContext
from samestep.common.strategy import Run
from samestep.common.techniques.schedule.statement import at_step
from samestep.common.techniques.used import exchange_of, first_steady_step
from samestep.common.workload.initial import empty_slots, init
from samestep.common.workload.optimizers.spec import OptimizerSpec, Update, of_dimensions


class TrainingProgram(PlainProgram):
    """The oracle's program: a single process that sends nothing, and against which every other program is judged."""

    def __init__(self, run: Run, start: TrainState | None = None) -> None:
        """Builds the model.

        Args:
            run: The run.
            start: The state to copy and continue from; without one, the weights are drawn and step 0 comes next.
        """
        self.hardware = Hardware(note="one core")
        self.context = StepContext()
        self.model = build_model(run.workload.model, self.context)
        self.loss = LOSSES[run.workload.model.loss]
        self.run = run
        self.examples = examples_together(run)
        self.optimizer = run.optimizer
        self.update: Update = type(run.optimizer).update
        self.techniques = run.techniques
        exchange = exchange_of(run.techniques)
        self.exchange = None if exchange is None else exchange.statement
        self.together = rank_programs(run, TrainingProgram, start)
        self._losses: list[float] = []
        if start is not None:
            self._copy(start)
            return
        self.params = init(run.workload.model, run.seed)
        self.buffers = initial_buffers(run.workload.model)
        self.slots = empty_slots(run.optimizer, run.workload.model.params())
        self.local: tuple[Arrays, ...] = ()
        self._step = self._skipped = 0

    @property
    def programs(self) -> "list[TrainingProgram]":
        """The programs that take the steps: those of the ranks if there are local steps, otherwise this one."""
        return self.together.ranks if self.together else [self]

    def step(self, batch: Batch) -> None:
        """Computes the gradients of all micro-batches, and updates statistics and parameters; or has the ranks take the step."""
        if self.together:
            self._step += 1
            self._losses.append(self.together.step(batch, self._step))
            self.params = self.together.shared
            return
        self.context.statistics.clear()
        loss, gradients = self.gradients(batch)
        self._losses.append(loss)
        self.keep_statistics()
        self.apply(gradients)

    def gradients(self, batch: Batch) -> tuple[float, Arrays]:
        """Computes the global mean loss and its gradients over all micro-batches; a technique may exchange the gradients."""
        if self.together:
            return self.together.gradients(batch)
        if self.exchange is None or self._step < first_steady_step(self.run.techniques):
            return accumulate(self, batch, self.run.passes)
        losses, shards = zip(*parts_of(self, batch, self.run.num_devices, self.run.passes), strict=True)
        gradients, self.local = self.exchange(self.run, shards, self.local)
        return sum(losses), gradients

    def keep_statistics(self) -> None:
        """Updates the running statistics with those that the layers noted in the step."""
        move_buffers(self.buffers, self.context.statistics, self.run)

    def apply(self, gradients: Arrays) -> None:
        """Transforms the gradients as the techniques require, then updates every parameter."""
        gradients = transform(gradients, self.techniques)
        self._step += 1
        optimizer = self.optimizer_at(self._step)
        for name, value in self.params.items():
            slots = {slot: arrays[name] for slot, arrays in self.slots.items() if name in arrays}
            update = of_dimensions(optimizer, value.ndim)
            self.update(update, self._step - self._skipped, value, gradients[name], slots)

    def optimizer_at(self, step: int) -> OptimizerSpec:
        """Returns the optimizer with the learning rate of a step; steps are counted from 1."""
        return at_step(self.optimizer, self.techniques, step)

    def losses(self) -> list[float]:
        """Returns the losses since the last call."""
        taken, self._losses = self._losses, []
        return taken

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Computes the logits of inputs."""
        return self.model.forward(self.params | self.buffers, inputs)[0]

    def state(self) -> TrainState:
        """Copies the parameters, the optimizer state, the buffers, and the local state of each device."""
        if self.together:
            return self.together.state()
        slots = {slot: copied(arrays) for slot, arrays in self.slots.items()}
        local = tuple(map(copied, self.local))
        return TrainState(self._step, copied(self.params), slots, copied(self.buffers), local, self._skipped)

    def restore(self, state: TrainState) -> None:
        """Copies everything that `state` returns, into float64."""
        if self.together:
            self.together.restore(state)
        self._copy(state)

    def _copy(self, state: TrainState) -> None:
        self._step, self._skipped = state.step, state.skipped
        self.params = copied(state.params)
        self.buffers = copied(state.buffers)
        self.slots = {slot: copied(arrays) for slot, arrays in state.slots.items()}
        self.local = tuple(map(copied, state.local))

    def sends(self) -> tuple[Send, ...]:
        """Returns an empty tuple, as there is only one process."""
        return ()

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the arrays of this process."""
        params = sum(value.nbytes for value in self.params.values())
        slots = [value for arrays in self.slots.values() for value in arrays.values()]
        dtypes = "+".join(dict.fromkeys(value.dtype.name for value in slots))
        return (Footprint.uniform("cpu", params, sum(value.nbytes for value in slots), "tensors", dtypes),)


def num_compilations() -> int:
    """Returns the number of functions that this process has compiled: NumPy compiles none."""
    return 0
