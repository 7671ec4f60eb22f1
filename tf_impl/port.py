"""Traces the user's TensorFlow model on one batch: every layer, the gradients, one step, and a curve of losses."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from samestep.common.batch import Batch, batches
from samestep.common.errors import ConfigError
from samestep.common.porting.model_trace import ModelTrace, TraceRequest, write_trace
from samestep.common.porting.starting_weights import read_weights, saved_weights, write_weights
from samestep.common.porting.traced_call import layer_calls
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.description_report import EXAMPLES
from samestep.common.workload.models.user_model import UserModelSpec
from samestep.tf_impl import tracing
from samestep.tf_impl.describing.amended import added_losses, amend_loss
from samestep.tf_impl.describing.configured import HyperParameters, hyper_parameters, own_hyper_parameters
from samestep.tf_impl.features.applied import held_still
from samestep.tf_impl.features.draws import STILL
from samestep.tf_impl.models.inputs import Inputs, as_inputs, with_shares
from samestep.tf_impl.models.losses import Loss
from samestep.tf_impl.models.outputs import main_outputs
from samestep.tf_impl.models.user_loss import loss_function
from samestep.tf_impl.models.user_model import UserModel, begin_in_float64
from samestep.tf_impl.optimizers import bind_update, coefficients
from samestep.tf_impl.step import part_loss

Gradients = list[tf.Tensor]
Update = Callable[[Gradients, tf.Tensor], None]
"""A function that changes the parameters, given (gradients, coefficients of the step)."""
_MOST_LETTERS = 200
"""The most letters of Keras' error about a file that a message quotes."""


def trace(folder: Path, asked: TraceRequest, split: Split) -> None:
    """Traces a model.

    Args:
        folder: The folder that holds the weights, to which the trace is written.
        asked: What to trace.
        split: The data.
    """
    DRAWS.install(STILL)  # before the user's file is imported
    model = load_model(asked.model, "tf")
    begin_in_float64(asked.seed)
    built = UserModel(model, asked.model, as_inputs(split.train_inputs[:EXAMPLES]))
    dropped = held_still(built.layers())
    spec, params = _described(folder), list(built.params.values())
    loss = amend_loss(_called(part_loss(spec, asked.batch_size), asked.model), built, asked.amendments)
    first = next(batches(split.train_inputs, split.train_targets, asked.batch_size, asked.seed))
    x, y = _arrays(spec, first)
    _start(built, folder)
    with built.recording() as evaluated:
        outputs_evaluated = built.predict(x)
    with built.recording() as trained, tf.GradientTape() as tape:
        outputs = built(x)
        value = loss(outputs, y)
    added = added_losses(built, asked.amendments)  # before the step, which moves what is penalized
    found = tape.gradient(value, [*params, *(call.output for call in trained.calls)])
    gradients = _gradients(built, found)
    update, hyper, _ = _updates(model, asked, built)
    update([gradients[name] for name in built.trained], coefficients(asked.update, 1))
    traced = ModelTrace(
        calls=layer_calls([*map(_with_gradient, trained.calls, found[len(params) :])], evaluated.calls, np.asarray),
        outputs=main_outputs(outputs).numpy(),
        evaluated=main_outputs(outputs_evaluated).numpy(),
        targets=first.rows()[1],
        loss=float(value),
        each=_losses(model, outputs, y),
        added=added,
        stilled=trained.stilled_by(dropped),
        optimizer=hyper,
        gradients={name: gradient.numpy() for name, gradient in gradients.items()},
        buffers={name: variable.numpy() for name, variable in built.buffers.items()},
        stepped={name: variable.numpy() for name, variable in built.params.items()},
        losses=(),
        frozen=tuple(built.frozen),
    )
    if asked.steps:
        losses, rates = _curve(model, asked, built, folder, loss, split)
        traced = dataclasses.replace(traced, losses=losses, rates=rates)
    write_trace(folder, traced)


def _gradients(built: UserModel, found: Sequence[Any]) -> dict[str, tf.Tensor]:
    """Returns the gradients of all parameters by name; those of frozen ones are zero, even if the tape has one."""
    both = zip(built.params.items(), found, strict=False)
    return {name: _dense(None if name in built.frozen else each, variable) for (name, variable), each in both}


def _losses(model: Model, outputs: Any, y: Any) -> np.ndarray:
    """Returns the user's loss for each target or example; empty if the loss is ours."""
    function = loss_function(model)
    targets = y["targets"] if isinstance(y, dict) else y
    return np.zeros(0) if function is None else np.asarray(function(outputs, targets), np.float64)


def save(folder: Path, asked: TraceRequest, split: Split) -> None:
    """Writes the weights as Keras does.

    Args:
        folder: The folder that holds the weights, to which the file is written.
        asked: The request, which names the model.
        split: The data.

    Raises:
        ConfigError: The model is not a Keras model.
    """
    built = _in_own_dtypes(asked, split)
    _start(built, folder)
    built.model.save_weights(saved_weights(folder, "tf"))


def load(folder: Path, asked: TraceRequest, split: Split) -> None:
    """Reads weights that Keras wrote.

    Args:
        folder: The folder to which the weights are written.
        asked: The request, which names the model and the file.
        split: The data.

    Raises:
        ConfigError: The model is not a Keras model, or the file does not hold its weights.
    """
    built = _in_own_dtypes(asked, split)
    try:
        built.model.load_weights(asked.checkpoint)
    except Exception as error:  # Keras and h5py raise a dozen kinds on files that are damaged, or of another model
        why = " ".join(str(error).split())
        raise ConfigError(
            f"--weights {asked.checkpoint} does not hold the weights of the tf= of {asked.model}; give its own checkpoint. "
            f"Keras says: {why[:_MOST_LETTERS]}"
        ) from error
    arrays = [{name: variable.numpy() for name, variable in each.items()} for each in (built.params, built.buffers)]
    write_weights(folder, arrays[0], arrays[1])


def _in_own_dtypes(asked: TraceRequest, split: Split) -> UserModel:
    """Builds the model as its user does, in float32, after one that was built in float64."""
    keras.utils.clear_session(free_memory=False)
    keras.config.set_floatx("float32")
    few = as_inputs(split.train_inputs[:EXAMPLES])
    given = tf.nest.map_structure(lambda array: tf.cast(array, "float32") if array.dtype.is_floating else array, few)
    built = UserModel(load_model(asked.model, "tf"), asked.model, given)
    if not isinstance(built.model, keras.Model):
        raise ConfigError(
            f"--weights: the tf= of {asked.model} is a tf.Module, for which Keras has no file of weights; give a keras.Model."
        )
    return built


def _described(folder: Path) -> UserModelSpec:
    return UserModelSpec.of(str(folder.resolve().parent / "tf"))


def _arrays(spec: UserModelSpec, batch: Batch) -> tuple[Inputs, Any]:
    """Returns the inputs of a batch, and its targets as its loss takes them."""
    inputs, targets = batch.rows()
    return as_inputs(inputs), as_inputs(with_shares(spec, batch, targets, "float64"))


def _called(loss: Loss, source: str) -> Loss:
    return lambda outputs, targets: call_user(loss, source, "the loss", outputs, targets)


def _start(built: UserModel, folder: Path) -> None:
    for variables, values in zip((built.params, built.buffers), read_weights(folder), strict=True):
        for name, value in values.items():
            variables[name].assign(value)


def _with_gradient(call: tracing.Call, gradient: tf.Tensor | tf.IndexedSlices | None) -> tracing.Call:
    return dataclasses.replace(call, gradient=None if gradient is None else tf.convert_to_tensor(gradient))


def _dense(gradient: tf.Tensor | tf.IndexedSlices | None, source: tf.Variable) -> tf.Tensor:
    return tf.zeros_like(source) if gradient is None else tf.convert_to_tensor(gradient)


def _curve(
    model: Model, asked: TraceRequest, built: UserModel, folder: Path, loss: Loss, split: Split
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Trains from the weights; returns the losses, and the rate of each step where the user's optimizer has one."""
    spec = _described(folder)
    _start(built, folder)
    params, (update, _, rate) = list(built.trained.values()), _updates(model, asked, built)

    def step(x: Inputs, y: tf.Tensor, coefficients: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(built(x), y)
        found = tape.gradient(value, params)
        update([_dense(gradient, source) for gradient, source in zip(found, params, strict=True)], coefficients)
        return value

    traced, losses, rates = tf.function(step, autograph=False), list[float](), list[float]()
    examples = batches(split.train_inputs, split.train_targets, asked.batch_size, asked.seed)
    for number, batch in enumerate(itertools.islice(examples, asked.steps), 1):
        rates.append(rate())
        losses.append(float(traced(*_arrays(spec, batch), coefficients(asked.update, number))))
    return tuple(losses), tuple(rates)


def _updates(
    model: Model, asked: TraceRequest, built: UserModel
) -> tuple[Update, HyperParameters, Callable[[], float]]:
    """Returns the user's optimizer, or ours, with its state as at the start; its settings; and the rate of its next step.

    Raises:
        ConfigError: Keras' optimizer does not update in every step.
    """
    if model.optimizer is not None and "tf" in model.optimizer:
        own: Any = call_user(model.optimizer["tf"], asked.model, "the function given as optimizer")
        variables = built.trainable()
        own.build(variables)
        if own.gradient_accumulation_steps:
            raise ConfigError(
                f"--model {asked.model}: the optimizer for tf has gradient_accumulation_steps={own.gradient_accumulation_steps}, "
                "so it does not update in every step; leave it out, and give `samestep run` --accumulation-steps instead."
            )
        hyper = hyper_parameters(own, dict(zip(built.trained, variables, strict=True)))
        return lambda gradients, _: own.apply(gradients, variables), hyper, lambda: float(own.learning_rate)
    spec, params = asked.update, list(built.trained.values())
    apply = bind_update(spec)
    slots = [[tf.Variable(tf.zeros_like(v)) for _ in spec.slots] for v in params]

    def update(gradients: Gradients, coefficients: tf.Tensor) -> None:
        for variable, gradient, held in zip(params, gradients, slots, strict=True):
            apply(variable, gradient, held, coefficients)

    return update, own_hyper_parameters(spec, built.params), lambda: spec.learning_rate
