"""The training step seen from above: one program over whole tensors, which DTensor cuts as their layouts say.

The parts are those of `program.py`: gradients of each micro-batch, exchange, clip, update. There is no exchange to
write, since every tensor means the whole one. Gradients and update are two functions: in one, DTensor (tensorflow
2.21) moves the all-reduce of a gradient behind AdamW's arithmetic, which is not linear, and trains something else.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from common.batch import Batch
from common.config import RunConfig
from common.ledger import Exchange, Footprint
from common.strategy import TrainState
from common.workload.models.spec import init
from common.workload.table import Workload
from tf_impl import weights
from tf_impl.exchanges import ExpandedFunctions
from tf_impl.layouts import Layouts
from tf_impl.models import build_model
from tf_impl.models.losses import LOSSES
from tf_impl.optimizers import UPDATES, corrections


class GlobalProgram:
    """A model in training on a mesh, of which this process drives some or all devices."""

    def __init__(self, workload: Workload, config: RunConfig, layouts: Layouts, device_note: str) -> None:
        self.layouts = layouts
        self.device_note = device_note
        self.loss = LOSSES[workload.model.loss]
        self.optimizer = workload.optimizer(config)
        self.update = UPDATES[self.optimizer.name]
        self.micro_batches = config.techniques.micro_batches
        self.clip_norm = config.techniques.clip_norm
        self._step = 0
        self._losses: list[tf.Tensor] = []
        self._expanded = ExpandedFunctions()
        self._gradients_bytes = [0] * len(layouts.places)
        variables = weights.NamedVariables(init(workload.model, config.seed), config.dtype, self._variable, _lookup)
        self.model = build_model(workload.model, variables)
        self.params: dict[str, dtensor.DVariable] = variables.by_name
        self.slots = {
            slot: {name: self._variable(np.zeros(v.shape, config.dtype), name) for name, v in self.params.items()}
            for slot in self.optimizer.slots
        }
        self._gradients = tf.function(self.gradients, autograph=False)
        self._apply = tf.function(self.apply, autograph=False)
        self._predict = tf.function(lambda x: layouts.along_batch(self.model(x)), autograph=False)

    def _variable(self, value: np.ndarray, name: str) -> dtensor.DVariable:
        part = self.layouts.place(value, self.layouts.of(name, value.ndim))
        return dtensor.DVariable(part, name=name.replace("/", "_"))

    def step(self, batch: Batch) -> None:
        """Gradients, then update."""
        with self._expanded.first_time():
            loss, gradients = self._gradients(*self._arguments(batch))
        now = tf.constant(corrections(self.optimizer, self._step + 1), tf.float64)
        self._apply(gradients, self.layouts.whole(now))
        self._gradients_bytes = [sum(nbytes) for nbytes in zip(*map(self.layouts.local_bytes, gradients), strict=True)]
        self._losses.append(loss)
        self._step += 1

    def _arguments(self, batch: Batch) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        parts = [self.layouts.micro_batch(batch, micro, self.micro_batches) for micro in range(self.micro_batches)]
        return [x for x, _ in parts], [y for _, y in parts]

    def gradients(self, xs: list[tf.Tensor], ys: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Loss and gradients of the global mean loss, accumulated over the micro-batches, each laid out as its parameter."""
        count = sum(y.shape.num_elements() for y in ys)
        variables = list(self.params.values())
        total_loss, total = None, []
        for x, y in zip(xs, ys, strict=True):
            with tf.GradientTape() as tape:
                # Laid out along the batch only: losses over sharded classes are silently wrong in float64.
                loss = self.loss(self.layouts.along_batch(self.model(x)), y) / count
            gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
            total = [a + g for a, g in zip(total, gradients, strict=True)] if total else gradients
            total_loss = loss if total_loss is None else total_loss + loss
        return total_loss, [dtensor.relayout(g, v.layout) for g, v in zip(total, variables, strict=True)]

    def apply(self, gradients: list[tf.Tensor], corrections: tf.Tensor) -> None:
        """Clips by the global norm, then updates every parameter."""
        if self.clip_norm is not None:
            norm = tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in gradients]))
            gradients = [g * tf.minimum(self.clip_norm / norm, 1.0) for g in gradients]
        for (name, variable), gradient in zip(self.params.items(), gradients, strict=True):
            slots = tuple(slot[name] for slot in self.slots.values())
            self.update(self.optimizer, variable, gradient, slots, corrections)

    def losses(self) -> list[float]:
        """The global losses since the last call; every device has them whole."""
        taken, self._losses = self._losses, []
        return [float(loss) for loss in taken]

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits, gathered."""
        return self.layouts.gathered(self._predict(self.layouts.batch(inputs)))

    def state(self) -> TrainState:
        """Parameters and slots, gathered."""
        slots = {slot: self._gathered(variables) for slot, variables in self.slots.items()}
        return TrainState(self._step, self._gathered(self.params), slots)

    def _gathered(self, variables: Mapping[str, dtensor.DVariable]) -> dict[str, np.ndarray]:
        return {name: self.layouts.gathered(variable.read_value()) for name, variable in variables.items()}

    def restore(self, state: TrainState) -> None:
        """Each device takes its part."""
        self._step = state.step
        for variables, values in ((self.params, state.params), *((self.slots[s], state.slots[s]) for s in self.slots)):
            for name, variable in variables.items():
                value = values[name].astype(variable.dtype.as_numpy_dtype)
                variable.assign(self.layouts.place(value, variable.layout))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step; its collectives are those that DTensor put into it."""
        self.step(batch)
        return self._expanded.exchanges()

    def footprint(self) -> tuple[Footprint, ...]:
        """The parts that each device of this process holds; what a step gathers is in the expanded function only."""
        slots = [v for variables in self.slots.values() for v in variables.values()]
        params_bytes, slots_bytes = (
            [sum(each) for each in zip(*(self.layouts.local_bytes(v.read_value()) for v in variables), strict=True)]
            for variables in (self.params.values(), slots)
        )
        gathered = self._expanded.gathered_variable_bytes()
        rows = zip(self.layouts.devices, params_bytes, self._gradients_bytes, slots_bytes, strict=True)
        return tuple(Footprint(name, p, p + gathered, g, s, "tensors") for name, p, g, s in rows)

    def measures(self) -> Mapping[str, float]:
        """None."""
        return {}

    def sync(self) -> None:
        """Waits for the last step's update: DTensor runs it in the background."""
        for part in dtensor.unpack(next(iter(self.params.values())).read_value()):
            part.numpy()

    def close(self) -> None:
        """TensorFlow's collectives end with the process."""


def _lookup(table: dtensor.DVariable, ids: tf.Tensor) -> tf.Tensor:
    """Reads the table first: DTensor looks nothing up in a variable whose rows are cut."""
    return tf.gather(tf.convert_to_tensor(table), ids)
