"""The training step as one global program over full tensors, which DTensor shards by their layouts.

The parts are those of `program.py`: gradients of each micro-batch, exchange, clip, update. There is no exchange to
write, since every tensor means the full one. Gradients and update are two functions: in one, DTensor (tensorflow
2.21) combines the all-reduces and then reads optimizer state from before its assignment.
"""

import itertools

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from samestep.common.batch import Batch
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, PlainProgram, StatePiece, TrainState, whole
from samestep.common.strategy import Run
from samestep.common.workload.initial import empty_slots
from samestep.tf_impl import weights
from samestep.tf_impl.dtensor.layouts import Layouts
from samestep.tf_impl.observing.expanded import ExpandedFunctions
from samestep.tf_impl.optimizers import bind_update, coefficients
from samestep.tf_impl.step import accumulate, mean_loss
from samestep.tf_impl.techniques.applied import transform


class DTensorProgram(PlainProgram):
    """A model in training on a mesh, of which this process drives some or all devices."""

    def __init__(self, run: Run, layouts: Layouts, hardware: Hardware) -> None:
        self.run, self.layouts, self.hardware = run, layouts, hardware
        self.loss = mean_loss(run)
        self.update = bind_update(run.optimizer)
        self._step = self._skipped = 0
        self._losses: list[tf.Tensor] = []
        self._expanded = ExpandedFunctions()
        self._gradients_bytes = [0] * len(layouts.devices)
        self.model, self.params = weights.fresh_model(run, self._variable, _lookup)
        self.slots = {
            slot: {name: self._variable(value.astype(run.dtype), name) for name, value in arrays.items()}
            for slot, arrays in empty_slots(run.optimizer, run.workload.model.params()).items()
        }
        self._gradients = tf.function(self.gradients, autograph=False)
        self._apply = tf.function(self.apply, autograph=False)
        self._predict = tf.function(self.logits, autograph=False)
        self._expand_update()

    def _variable(self, value: np.ndarray, name: str) -> dtensor.DVariable:
        shards = self.layouts.shard(value, self.layouts.of(name, value.ndim))
        return dtensor.DVariable(shards, name=name.replace("/", "_"))

    def _expand_update(self) -> None:
        """Runs the update once and restores the variables.

        tensorflow 2.21: DTensor folds small gradients into the function as constants, so the next call, with other
        gradients, has the function expanded again. That call is now the first step, and not the second one, which is
        timed.
        """
        variables = [*self.params.values(), *(v for slot in self.slots.values() for v in slot.values())]
        before = [variable.read_value() for variable in variables]
        self._apply(before[: len(self.params)], self.layouts.replicate(coefficients(self.run.optimizer, 1)))
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)

    def step(self, batch: Batch) -> None:
        """Computes the gradients, then updates."""
        with self._expanded.first_time():
            loss, gradients = self._gradients(self.layouts.micro_batches(self.run, batch, self.run.passes))
        now = coefficients(self.run.optimizer_at(self._step + 1), self._step + 1 - self._skipped)
        self._apply(gradients, self.layouts.replicate(now))
        self._gradients_bytes = self.layouts.local_bytes(gradients)
        self._losses.append(loss)
        self._step += 1

    def gradients(self, parts: list[tuple[tf.Tensor, tf.Tensor]]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Accumulates the global mean loss and its gradients over micro-batches; each is laid out as its parameter."""
        variables = list(self.params.values())
        loss, gradients = accumulate(self.logits, self.loss, variables, parts)
        return loss, [dtensor.relayout(g, v.layout) for g, v in zip(gradients, variables, strict=True)]

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """Computes logits, laid out along the batch only: losses over sharded classes are silently wrong in float64."""
        return self.layouts.along_batch(self.model(x))

    def apply(self, gradients: list[tf.Tensor], coefficients: tf.Tensor) -> None:
        """Clips by the global norm, then updates every parameter.

        Args:
            gradients: The gradients in the order of the parameters, each laid out as its parameter.
            coefficients: The coefficients of the step, as `optimizers.coefficients` computes them, on every device.
        """
        transformed = transform(gradients, self.run.techniques)
        for gradient, (name, variable) in zip(transformed, self.params.items(), strict=True):
            self.update(
                variable, gradient, tuple(slot[name] for slot in self.slots.values() if name in slot), coefficients
            )

    def losses(self) -> list[float]:
        """Returns the global losses since the last call; every device has them in full."""
        taken, self._losses = self._losses, []
        return [float(loss) for loss in taken]

    def agree(self, value: float) -> float:
        """Computes the mean over processes."""
        return self.layouts.mean(value)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Computes logits and gathers them."""
        return self.layouts.gather(self._predict(self.layouts.batch(inputs)))

    def state(self) -> TrainState:
        """Gathers parameters and optimizer state."""
        read = lambda variable: self.layouts.gather(variable.read_value())  # noqa: E731
        return weights.snapshot(self._step, self.params, self.slots, read, {}, self._skipped)

    def shards(self) -> list[StatePiece] | None:
        """Returns the shards of this process's devices; None if they hold everything."""
        if self.layouts.is_whole:
            return None
        held = {f"params/{name}": variable for name, variable in self.params.items()}
        held |= {f"slots/{slot}/{name}": v for slot, variables in self.slots.items() for name, v in variables.items()}
        numbers = {"step": self._step, "skipped": self._skipped} if self.layouts.is_first else {}
        cut = (self.layouts.pieces(path, v.read_value(), v.layout) for path, v in held.items())
        return [*itertools.chain(*cut), *(whole(path, np.asarray(number)) for path, number in numbers.items())]

    def restore(self, state: TrainState) -> None:
        """Assigns each device its shards."""
        self._step, self._skipped = state.step, state.skipped
        weights.restore(state, self.run.dtype, self.params, self.slots, self._assign, {})

    def _assign(self, variable: dtensor.DVariable, value: np.ndarray) -> None:
        variable.assign(self.layouts.shard(value, variable.layout))

    def sends(self) -> tuple[Send, ...]:
        """Returns the collectives that DTensor put into the step, in the order of its graph."""
        return self._expanded.sends(self.run.mesh.only_axis)

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the shards that each device of this process holds; what a step gathers is only in the expanded function."""
        gathered = self._expanded.gathered_variable_bytes()
        params_bytes = self.layouts.local_bytes(v.read_value() for v in self.params.values())
        slots_bytes = self.layouts.local_bytes(v.read_value() for slot in self.slots.values() for v in slot.values())
        rows = zip(self.layouts.devices, params_bytes, self._gradients_bytes, slots_bytes, strict=True)
        return tuple(
            Footprint(
                device=device,
                params_bytes=params,
                params_peak_bytes=params + gathered,
                gradients_bytes=gradients,
                optimizer_bytes=slots,
                source="tensors",
                optimizer_dtype=weights.dtype_names(v for slot in self.slots.values() for v in slot.values()),
            )
            for device, params, gradients, slots in rows
        )

    def sync(self) -> None:
        """Waits for the last step's update: DTensor runs it in the background."""
        for shard in dtensor.unpack(next(iter(self.params.values())).read_value()):
            shard.numpy()


def _lookup(table: dtensor.DVariable, ids: tf.Tensor) -> tf.Tensor:
    """Reads the table first: DTensor looks nothing up in a variable whose rows are cut."""
    return tf.gather(tf.convert_to_tensor(table), ids)
