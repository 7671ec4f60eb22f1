"""Loops as a user would write them by hand in TensorFlow; only the model and the update are ours."""

from collections.abc import Callable
from typing import cast

import tensorflow as tf

from samestep.common.batch import WHOLE, Batch
from samestep.common.program import Program
from samestep.common.strategy import Run
from samestep.tf_impl.optimizers import bind_update, coefficients
from samestep.tf_impl.program import TrainingProgram
from samestep.tf_impl.step import Logits
from samestep.tf_impl.weights import fresh_model

Step = Callable[[Batch], object]


def single(run: Run, program: Program) -> Step:
    """Returns a loop in one process without a strategy."""
    model, params, slots = _model(run)
    spec, update = run.optimizer, bind_update(run.optimizer)
    taken = 0

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = _loss(model(x), y)
        for w, g, own in zip(params, tape.gradient(loss, params), slots, strict=True):
            update(w, tf.convert_to_tensor(g), own, bias)
        return loss

    def step(batch: Batch) -> tf.Tensor:
        nonlocal taken
        taken += 1
        inputs, targets = batch.rows()
        return train(tf.constant(inputs), tf.constant(targets), coefficients(spec, taken))

    return step


def mirrored(run: Run, program: Program) -> Step:
    """Returns a loop under the strategy's own `run`. It is the program's strategy, as a process can have only one."""
    strategy = cast(TrainingProgram, program).parts.strategy
    count = strategy.num_replicas_in_sync
    spec, update = run.optimizer, bind_update(run.optimizer)
    with strategy.scope():
        model, params, slots = _model(run)
    taken = 0

    def apply(strategy: tf.distribute.Strategy, bias: tf.Tensor, *gradients: tf.Tensor) -> None:
        pairs = list(zip(gradients, params, strict=True))
        summed = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
        for w, g, own in zip(params, summed, slots, strict=True):
            strategy.extended.update(w, update, args=(g, tuple(own), bias))

    def replica(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = _loss(model(x), y) / count
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, params)]
        tf.distribute.get_replica_context().merge_call(apply, args=(bias, *gradients))
        return loss

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return strategy.experimental_local_results(strategy.run(replica, args=(x, y, bias)))

    def step(batch: Batch) -> tf.Tensor:
        nonlocal taken
        taken += 1
        x, y = strategy.experimental_distribute_values_from_function(
            lambda replica: tuple(map(tf.constant, batch.rows(WHOLE.split(replica.replica_id_in_sync_group, count))))
        )
        return train(x, y, coefficients(spec, taken))[0]

    return step


multi_worker_mirrored = mirrored


def _loss(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    return -tf.reduce_mean(tf.gather(tf.nn.log_softmax(logits), targets, batch_dims=targets.shape.rank))


def _model(run: Run) -> tuple[Logits, list[tf.Variable], list[tuple[tf.Variable, ...]]]:
    """Returns the model, its variables, and the optimizer state of each variable."""
    model, params = fresh_model(run)
    variables = list(params.values())
    slots = [[tf.Variable(tf.zeros_like(variable)) for variable in variables] for _ in run.optimizer.slots]
    return model, variables, list(zip(*slots, strict=True))
