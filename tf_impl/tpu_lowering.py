"""The training step of one TPU core, lowered to StableHLO from shapes alone: nothing is run, drawn or allocated.

The parts are those of `program.py`, with the same models, losses and updates: gradients of each micro-batch, exchange,
clip, update. Only the variables are gone: a compiler that has no device cannot hold any, so that the step takes the
state as arguments and returns it changed.
"""

import dataclasses

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from common.batch import Batch
from common.config import RunConfig
from common.workload.table import Workload
from tf_impl.models import build_model
from tf_impl.models.losses import LOSSES
from tf_impl.optimizers import UPDATES, corrections


class Held:
    """What an update takes for a variable: a tensor, and the one that is assigned in its place."""

    def __init__(self, value: tf.Tensor) -> None:
        self.value = value
        self.dtype = value.dtype

    def assign(self, value: tf.Tensor) -> tf.Tensor:
        """Keeps the new value, to be returned by the step."""
        self.value = value
        return value

    def assign_sub(self, delta: tf.Tensor) -> tf.Tensor:
        """Likewise."""
        return self.assign(self.value - delta)

    def __mul__(self, other: tf.Tensor | float) -> tf.Tensor:
        return self.value * other

    __rmul__ = __mul__


@dataclasses.dataclass(frozen=True)
class Arguments:
    """A variable factory for models whose parameters are a function's arguments.

    Attributes:
        values: Neutral name -> argument.
    """

    values: dict[str, tf.Tensor]
    lookup = staticmethod(tf.gather)

    def __call__(self, name: str) -> tf.Tensor:
        """The argument that stands for a variable."""
        return self.values[name]


class Step:
    """One training step of one of `replicas` cores: (parameters, slots, shard, corrections) -> (parameters, slots, loss)."""

    def __init__(self, workload: Workload, config: RunConfig, replicas: int) -> None:
        self.spec = workload.model
        self.shapes = {name: param.shape for name, param in workload.model.params().items()}
        self.loss = LOSSES[workload.model.loss]
        self.optimizer = workload.optimizer(config)
        self.update = UPDATES[self.optimizer.name]
        self.micro_batches = config.techniques.micro_batches
        self.clip_norm = config.techniques.clip_norm
        self.dtype = tf.as_dtype(config.dtype)
        self.replicas = replicas

    def __call__(self, *arguments: tf.Tensor) -> list[tf.Tensor]:
        """Takes the step.

        Args:
            *arguments: The parameters in the model's order, each slot's in the same order, inputs and targets of this
                core's shard, and the optimizer's corrections.

        Returns:
            Parameters and slots in that order, and this core's part of the loss.
        """
        *state, x, y, now = arguments
        count = len(self.shapes)
        params, *slots = (
            dict(zip(self.shapes, state[first : first + count], strict=True)) for first in range(0, len(state), count)
        )
        loss, gradients = self.gradients(params, x, y)
        params, *slots = self.apply(params, slots, gradients, now)
        return [value for values in (params, *slots) for value in values.values()] + [loss]

    def gradients(self, params: dict[str, tf.Tensor], x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Loss and gradients of the global mean loss, this core's part, accumulated over the micro-batches."""
        model = build_model(self.spec, Arguments(params))
        variables = list(params.values())
        count = y.shape.num_elements() * self.replicas
        total_loss, total = tf.constant(0.0, self.dtype), []
        for xs, ys in zip(*(tf.split(a, self.micro_batches) for a in (x, y)), strict=True):
            with tf.GradientTape() as tape:
                tape.watch(variables)
                loss = self.loss(model(xs), ys) / count
            gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
            total = [a + g for a, g in zip(total, gradients, strict=True)] if total else gradients
            total_loss += loss
        return total_loss, total

    def exchange(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sums every gradient over all replicas, as TPUStrategy does, whose own operation is in the TPU's wheel only."""
        if self.replicas == 1:
            return gradients
        group = [list(range(self.replicas))]
        return [gen_xla_ops.xla_all_reduce(g, group, reduce_op="Add", mode="CrossReplica") for g in gradients]

    def apply(
        self,
        params: dict[str, tf.Tensor],
        slots: list[dict[str, tf.Tensor]],
        gradients: list[tf.Tensor],
        corrections: tf.Tensor,
    ) -> list[dict[str, tf.Tensor]]:
        """Sums the gradients, clips by the global norm, then updates every parameter; returns parameters and slots."""
        gradients = self.exchange(gradients)
        if self.clip_norm is not None:
            norm = tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in gradients]))
            gradients = [g * tf.minimum(self.clip_norm / norm, 1.0) for g in gradients]
        held = [{name: Held(value) for name, value in values.items()} for values in (params, *slots)]
        for name, gradient in zip(params, gradients, strict=True):
            w, *own = (values[name] for values in held)
            self.update(self.optimizer, w, gradient, own, corrections)
        return [{name: each.value for name, each in values.items()} for values in held]

    def specs(self, batch: Batch) -> list[tf.TensorSpec]:
        """Shapes and dtypes of the arguments."""
        state = [tf.TensorSpec(shape, self.dtype) for shape in self.shapes.values()] * (1 + len(self.optimizer.slots))
        now = tf.TensorSpec((len(corrections(self.optimizer, 1)),), tf.float64)
        return [*state, *(self._spec(array) for array in batch.rows(0, self.replicas)), now]

    def _spec(self, array: np.ndarray) -> tf.TensorSpec:
        return tf.TensorSpec(array.shape, self.dtype if array.dtype.kind == "f" else array.dtype)


def stablehlo(step: Step, batch: Batch) -> bytes:
    """The step as StableHLO, in MLIR's bytecode: of truth values, tensorflow 2.21's text can be read by no newer MLIR."""
    function = tf.function(step, autograph=False, jit_compile=True)
    return function.experimental_get_compiler_ir(*step.specs(batch))(stage="stablehlo_serialized")
