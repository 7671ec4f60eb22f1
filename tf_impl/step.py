"""The step core that every program of TensorFlow shares: the mean loss, and accumulation over micro-batches.

It works for every kind of parameter: mirrored variables, DTensors, parts on servers, or plain tensors in a step that is
only lowered.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.common.tree import Tree
from samestep.common.workload.declaration import CLASSES_FIRST
from samestep.common.workload.models.spec import ModelSpec, ignores_targets
from samestep.common.workload.reductions import fixed_divisor, is_mean_of_own, varies
from samestep.tf_impl.models import UserModel, summed_loss
from samestep.tf_impl.models.inputs import Inputs
from samestep.tf_impl.models.losses import Loss, classes_last, weighted_cross_entropy
from samestep.tf_impl.observing.activations import BACKWARD, FORWARD

Gradient = tf.Tensor | tf.IndexedSlices
Part = tuple[tf.Tensor, list[Gradient | None]]
"""The loss of some micro-batches, and their gradients."""
Logits = Callable[[Inputs], tf.Tensor]
"""Inputs -> logits."""


def mean_loss(run: Run, num_means: int = 1) -> Loss:
    """Makes the loss of any part of a batch: its share of the loss of the GLOBAL batch.

    Args:
        run: What is trained.
        num_means: The number of equal shards of the global batch, each with a mean over its own targets.
    """
    return part_loss(run.workload.model, run.batch_size, num_means)


def part_loss(model: ModelSpec, examples: int, num_means: int = 1) -> Loss:
    """Makes the loss of any part of a batch, see `mean_loss`.

    Args:
        model: What is trained.
        examples: The number of examples of the global batch.
        num_means: As in `mean_loss`.
    """
    if ignores_targets(model):
        last = classes_last if model.loss == CLASSES_FIRST else tf.identity
        return lambda logits, targets: weighted_cross_entropy(last(logits), targets) * num_means
    summed = summed_loss(model)
    if varies(model):
        share = tf.reduce_sum if is_mean_of_own(model) else lambda shares: shares[0]
        return lambda logits, targets: summed(logits, targets["targets"]) * share(targets["share"]) * num_means
    count = fixed_divisor(model, examples) / num_means
    return lambda logits, targets: summed(logits, targets) / count


def with_added(run: Run, loss: Loss, model: Logits, num_means: int = 1) -> Loss:
    """Adds the added losses of a user's Keras model: for a part of a batch, in proportion to its share of the examples.

    What does not depend on the examples, such as a regularizer of weights, counts once in the sum over all parts; what is a mean
    over examples becomes the mean over the global batch. This is what Keras does with replicas.

    Args:
        run: What is trained.
        loss: As `mean_loss` makes it.
        model: The model, which has been called on the part, in this thread, before the loss is computed.
        num_means: As in `mean_loss`.
    """
    if not isinstance(model, UserModel):
        return loss

    def summed(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        of_targets = loss(logits, targets)
        added = model.added.total(of_targets.dtype)
        rows = tf.nest.flatten(targets)[0].shape[0]
        return of_targets if added is None else of_targets + added * (rows * num_means / run.batch_size)

    return summed


def micro_batches(x: Inputs, y: tf.Tensor, count: int) -> Iterator[tuple[Inputs, tf.Tensor]]:
    """Cuts a shard of the batch into equal micro-batches.

    Args:
        x: Inputs, each [shard, ...].
        y: Targets [shard, ...].
        count: The number of micro-batches, which divides the shard.
    """
    parts = [tf.split(array, count) for array in tf.nest.flatten((x, y))]
    return (tf.nest.pack_sequence_as((x, y), part) for part in zip(*parts, strict=True))


def accumulate(
    logits: Logits,
    loss: Loss,
    params: Sequence[tf.Variable | tf.Tensor],
    parts: Iterable[tuple[Inputs, tf.Tensor]],
    keep_rows: bool = False,
) -> Part:
    """Runs the forward and backward pass of every micro-batch, and sums losses and gradients as a tree.

    Args:
        logits: The model's forward pass.
        loss: The loss of one micro-batch, as `mean_loss` makes it.
        params: The variables or tensors with respect to which gradients are computed.
        parts: Inputs and targets of each micro-batch.
        keep_rows: Whether the gradient of a table stays the rows that were looked up; otherwise it is made dense.

    Returns:
        The summed loss and, in the order of `params`, the summed gradients; None for a variable that nothing reads, which no
        optimizer of Keras or torch updates.
    """

    def take(x: Inputs, y: tf.Tensor) -> Part:
        with tf.GradientTape() as tape, tf.name_scope(FORWARD):
            tape.watch([param for param in params if not getattr(param, "trainable", False)])  # others already are
            part_loss = loss(logits(x), y)
        with tf.name_scope(BACKWARD):
            gradients = tape.gradient(part_loss, params)
            if not keep_rows:
                gradients = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        return part_loss, gradients

    return sum_parts(take(*part) for part in parts)


def sum_parts(parts: Iterable[Part]) -> Part:
    """Sums the losses and the gradients of micro-batches as a tree.

    Args:
        parts: The loss and the gradients of each micro-batch.
    """
    taken = Tree(_add_parts)
    for part in parts:
        taken.push(part)
    return taken.pop()


def _add_parts(one: Part, other: Part) -> Part:
    """Adds the losses and the gradients of two micro-batches."""
    return one[0] + other[0], [_add(*gradients) for gradients in zip(one[1], other[1], strict=True)]


def _add(one: Gradient | None, other: Gradient | None) -> Gradient | None:
    """Adds two gradients; rows are joined, since making them dense adds up rows with the same id."""
    if one is None or other is None:  # nothing reads the parameter, in any micro-batch: it is one graph
        return None
    if isinstance(one, tf.IndexedSlices):
        values, indices = tf.concat([one.values, other.values], 0), tf.concat([one.indices, other.indices], 0)
        return tf.IndexedSlices(values, indices, one.dense_shape)
    return one + other
