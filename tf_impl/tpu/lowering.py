"""The training step of one TPU core, lowered to StableHLO from shapes alone: nothing is run, drawn or allocated.

The parts are those of `program.py`, with the same models, losses and updates: gradients of each micro-batch, exchange,
clip, update. Only the variables are gone: a compiler that has no device cannot hold any, so the step takes the state as
arguments and returns it changed.
"""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from samestep.common.batch import WHOLE, Batch
from samestep.common.strategy import Run
from samestep.tf_impl.models import build_model
from samestep.tf_impl.models.layers import VariableFactory
from samestep.tf_impl.optimizers import bind_update, coefficients
from samestep.tf_impl.step import accumulate, mean_loss, micro_batches
from samestep.tf_impl.techniques.applied import product_of, transform


class FunctionalVariable:
    """Stands in for a variable in an update: holds a tensor, and the one that is assigned in its place."""

    def __init__(self, value: tf.Tensor) -> None:
        self.value = value
        self.dtype = value.dtype

    def assign(self, value: tf.Tensor) -> tf.Tensor:
        """Keeps the new value, to be returned by the step."""
        self.value = value
        return value

    def assign_sub(self, delta: tf.Tensor) -> tf.Tensor:
        """Keeps the difference, as `assign` would."""
        return self.assign(self.value - delta)

    def __mul__(self, other: tf.Tensor | float) -> tf.Tensor:
        return self.value * other

    __rmul__ = __mul__


class ReplicaStep:
    """One training step of one of `replicas` cores: (parameters, optimizer state, shard, coefficients) -> new state, loss."""

    def __init__(self, run: Run, replicas: int) -> None:
        self.run = run
        self.shapes = {name: param.shape for name, param in run.workload.model.params().items()}
        self.loss = mean_loss(run)
        self.update = bind_update(run.optimizer)
        self.replicas = replicas

    def __call__(self, *arguments: tf.Tensor) -> list[tf.Tensor]:
        """Takes the step.

        Args:
            *arguments: The parameters in the model's order, each kind of optimizer state in the same order, inputs and
                targets of this core's shard, and the coefficients of the step.

        Returns:
            Parameters and optimizer state in that order, and this core's part of the loss.
        """
        *state, x, y, now = arguments
        loss, gradients = self.gradients(state[: len(self.shapes)], x, y)
        return [*self.apply(state, gradients, now), loss]

    def gradients(self, params: list[tf.Tensor], x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Accumulates this core's part of the loss and of the gradient of the global mean loss.

        Args:
            params: The parameters, in the model's order.
            x: Inputs of this core's shard.
            y: Its targets.
        """
        by_name = dict(zip(self.shapes, params, strict=True))
        model = build_model(self.run.workload.model, VariableFactory(by_name.__getitem__, product_of(self.run)))
        return accumulate(model, self.loss, params, micro_batches(x, y, self.run.passes))

    def exchange(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Sums every gradient over all replicas, as TPUStrategy does, whose own operation is in the TPU's wheel only."""
        if self.replicas == 1:
            return gradients
        group = [list(range(self.replicas))]
        return [gen_xla_ops.xla_all_reduce(g, group, reduce_op="Add", mode="CrossReplica") for g in gradients]

    def apply(self, state: list[tf.Tensor], gradients: list[tf.Tensor], coefficients: tf.Tensor) -> list[tf.Tensor]:
        """Sums the gradients, clips by the global norm, then updates every parameter.

        Args:
            state: The parameters, then each kind of optimizer state in the same order.
            gradients: This core's gradients, in the order of the parameters.
            coefficients: The coefficients of the step, as `optimizers.coefficients` computes them.

        Returns:
            The new state, in the form of the old one.
        """
        variables = [FunctionalVariable(value) for value in state]
        for index, gradient in enumerate(transform(self.exchange(gradients), self.run.techniques)):
            param, *slots = variables[index :: len(self.shapes)]
            self.update(param, gradient, slots, coefficients)
        return [variable.value for variable in variables]

    def specs(self, batch: Batch) -> list[tf.TensorSpec]:
        """Returns the shapes and dtypes of the arguments."""
        params = [tf.TensorSpec(shape, self.run.dtype) for shape in self.shapes.values()]
        shard = batch.rows(WHOLE.split(0, self.replicas))
        x, y = (tf.TensorSpec(a.shape, self.run.dtype if a.dtype.kind == "f" else a.dtype) for a in shard)
        now = tf.TensorSpec.from_tensor(coefficients(self.run.optimizer, 1))
        return [*params * (1 + len(self.run.optimizer.slots)), x, y, now]


def lower(step: ReplicaStep, batch: Batch) -> bytes:
    """Lowers the step to StableHLO, in MLIR's bytecode: no newer MLIR can read truth values in tensorflow 2.21's text.

    Args:
        step: The step.
        batch: A global batch, of which only the shapes count.
    """
    function = tf.function(step, autograph=False, jit_compile=True)
    return function.experimental_get_compiler_ir(*step.specs(batch))(stage="stablehlo_serialized")
