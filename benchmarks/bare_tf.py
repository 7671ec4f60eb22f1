"""The loops that one would write by hand in TensorFlow, without any of ours around them but model and update."""

from collections.abc import Callable
from typing import cast

import tensorflow as tf

from common.batch import Batch
from common.config import RunConfig
from common.strategy import Program
from common.workload.models.spec import init
from common.workload.table import Workload
from tf_impl import weights
from tf_impl.models import build_model
from tf_impl.optimizers import UPDATES, corrections
from tf_impl.program import TrainingProgram

Step = Callable[[Batch], object]


def single(workload: Workload, config: RunConfig, program: Program) -> Step:
    """One process, no strategy."""
    model, params, slots = _model(workload, config)
    spec = workload.optimizer(config)
    taken = 0

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = _loss(model(x), y)
        for w, g, own in zip(params, tape.gradient(loss, params), slots, strict=True):
            UPDATES[spec.name](spec, w, tf.convert_to_tensor(g), own, bias)
        return loss

    def step(batch: Batch) -> tf.Tensor:
        nonlocal taken
        taken += 1
        inputs, targets = batch.rows(0, 1)
        return train(tf.constant(inputs), tf.constant(targets), tf.constant(corrections(spec, taken), tf.float64))

    return step


def mirrored(workload: Workload, config: RunConfig, program: Program) -> Step:
    """A loop under the strategy's own `run`; one strategy a process, so that it is the program's."""
    strategy = cast(TrainingProgram, program).parts.strategy
    first = cast(TrainingProgram, program).parts.first_replica
    count = strategy.num_replicas_in_sync
    spec = workload.optimizer(config)
    with strategy.scope():
        model, params, slots = _model(workload, config)
    taken = 0

    def apply(strategy: tf.distribute.Strategy, bias: tf.Tensor, *gradients: tf.Tensor) -> None:
        pairs = list(zip(gradients, params, strict=True))
        summed = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
        for w, g, own in zip(params, summed, slots, strict=True):
            strategy.extended.update(
                w, lambda w, g, own, bias: UPDATES[spec.name](spec, w, g, own, bias), args=(g, tuple(own), bias)
            )

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
        local = [batch.rows(first + i, count) for i in range(len(strategy.extended.worker_devices))]
        x, y = (
            strategy.experimental_distribute_values_from_function(
                lambda context, k=k: tf.constant(local[context.replica_id_in_sync_group - first][k])
            )
            for k in (0, 1)
        )
        return train(x, y, tf.constant(corrections(spec, taken), tf.float64))[0]

    return step


multi_worker_mirrored = mirrored


def _loss(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    return -tf.reduce_mean(tf.gather(tf.nn.log_softmax(logits), targets, batch_dims=targets.shape.rank))


def _model(workload: Workload, config: RunConfig) -> tuple[tf.Module, list[tf.Variable], list[list[tf.Variable]]]:
    """The model, its variables, and for each its slots."""
    variables = weights.NamedVariables(init(workload.model, config.seed), config.dtype)
    model = build_model(workload.model, variables)
    params = list(variables.by_name.values())
    kinds = workload.optimizer(config).slots
    return model, params, [[tf.Variable(tf.zeros(w.shape, w.dtype), trainable=False) for _ in kinds] for w in params]
