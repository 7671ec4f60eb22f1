"""Batch normalization, written out: TensorFlow's fused one has no float64, and Keras' computes other numbers."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from samestep.common.features import Features
from samestep.common.features.batch_norm.statistics import EPSILON, MOMENTUM, batch_norms
from samestep.common.workload.models.spec import ModelSpec

if TYPE_CHECKING:
    from samestep.tf_impl.models.layers import VariableFactory  # which imports the models, and these what is here

BUFFER_ROLES = {"moving_mean": "running_mean", "moving_variance": "running_var"}
"""The buffers of Keras' layer -> their roles."""
Sum = Callable[[tf.Tensor], tf.Tensor]
"""Sums a tensor over the replicas that share statistics."""


class BatchNorm:
    """Normalizes each channel (the last dimension) over the batch, by the biased variance.

    Attributes:
        buffers: The running statistics, by neutral name.
    """

    def __init__(self, variable: "VariableFactory", name: str) -> None:
        self.scale, self.bias = variable(f"{name}/scale"), variable(f"{name}/bias")
        self.buffers = {key: variable.buffer(key) for key in (f"{name}/running_mean", f"{name}/running_var")}
        self._statistics = variable.features.batch_norm

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias; in training, the running statistics move.

        Args:
            x: [batch, ..., channels].
            training: Whether the statistics are those of the batch, unless they are frozen.
        """
        mean, variance = self.buffers.values()
        if not training or self._statistics == "frozen":
            return (x - mean) * tf.math.rsqrt(variance + EPSILON) * self.scale + self.bias
        replicas = tf.distribute.get_strategy().num_replicas_in_sync if self._statistics == "sync" else 1
        count = x.shape.num_elements() / x.shape[-1] * replicas
        scale, bias = tf.convert_to_tensor(self.scale), tf.convert_to_tensor(self.bias)
        out, *seen = _normalized(x, scale, bias, count, _sum_over_replicas if replicas > 1 else tf.identity)
        for kept, new in zip((mean, variance), (seen[0], seen[1] * (count / (count - 1))), strict=True):
            kept.assign(kept + MOMENTUM * (new - kept))
        return out


def _sum_over_replicas(x: tf.Tensor) -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, x)


def _total(x: tf.Tensor) -> tf.Tensor:
    """Returns the sum of each channel, axis by axis: summed at once, number by number, float32 loses two digits (2.21)."""
    while x.shape.rank > 1:
        x = tf.reduce_sum(x, -2)
    return x


def _normalized(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor, count: float, summed: Sum) -> list[tf.Tensor]:
    """Returns the outputs, the mean and the variance; it keeps the normalized input.

    Args:
        x: [batch, ..., channels].
        scale: [channels].
        bias: [channels].
        count: The count of numbers of each channel, over all replicas that share statistics.
        summed: Sums over these replicas.
    """

    @tf.custom_gradient
    def normalize(x: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., object]]:
        mean = summed(_total(x)) / count
        centred = x - mean
        variance = summed(_total(centred * centred)) / count
        inverse = tf.math.rsqrt(variance + EPSILON)
        normal = centred * inverse

        def gradient(dy: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            own = _total(dy * normal), _total(dy)  # summed with all other gradients later
            along, total = (summed(each) / count for each in own)
            return (dy - total - normal * along) * (scale * inverse), *own

        return [normal * scale + bias, mean, variance], gradient

    return normalize(x, scale, bias)


def batch_norm(spec: ModelSpec, variable: "VariableFactory", name: str) -> BatchNorm | None:
    """Returns the layer, or None if nothing is normalized.

    Args:
        spec: The spec of the model.
        variable: Makes its variables.
        name: Its path.
    """
    return BatchNorm(variable, name) if name in batch_norms(spec) else None


def norms_of(layers: Iterable[Any]) -> list[Any]:
    """Returns the layers of a user's model that normalize over the batch."""
    import keras  # here: our own models do without it

    return [each for each in layers if isinstance(each, keras.layers.BatchNormalization)]


def switch(layers: Sequence[Any], features: Features, held: Sequence[tf.Variable]) -> None:
    """Makes the batch normalizations of a user's model use and keep their running statistics, or compute those of all replicas.

    Args:
        layers: The layers of the model.
        features: The request.
        held: Other variables that training updates, which are kept with the running statistics.
    """
    if features.batch_norm == "frozen":
        freeze(layers, held)
    for each in norms_of(layers) if features.batch_norm == "sync" else ():
        each.synchronized = True


def freeze(layers: Sequence[Any], held: Sequence[tf.Variable]) -> Callable[[], None]:
    """Makes batch normalizations, and the layers that hold some variables, compute as in evaluation.

    Args:
        layers: The layers of a user's model.
        held: The variables.

    Returns:
        A function that undoes it.
    """
    holding = [
        each
        for each in layers
        if "training" in inspect.signature(each.call).parameters
        and any(own.value is variable for own in each._non_trainable_variables for variable in held)
    ]
    frozen = {id(each): each for each in (*norms_of(layers), *holding)}.values()
    for each in frozen:
        each.call = functools.partial(_evaluated, each.call)

    def undo() -> None:
        for each in frozen:
            each.call = each.call.args[0]

    return undo


def _evaluated(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Calls a layer as in evaluation, regardless of the mode that is asked for.

    Args:
        call: The layer's own call.
        *args: Its inputs.
        **named: Its other arguments.
    """
    given = inspect.signature(call).bind_partial(*args, **named)
    given.arguments["training"] = False
    return call(*given.args, **given.kwargs)
