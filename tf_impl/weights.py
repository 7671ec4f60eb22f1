"""Translates between neutral names and TensorFlow's variables. The layouts are the same."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np
import tensorflow as tf

from samestep.common.features.used import initial_buffers
from samestep.common.program import TrainState
from samestep.common.strategy import Run
from samestep.common.workload.initial import init, initial_weights
from samestep.tf_impl.features.applied import prepare
from samestep.tf_impl.models import build_model
from samestep.tf_impl.models.cnn import BabyCNN
from samestep.tf_impl.models.layers import Lookup, VariableFactory
from samestep.tf_impl.models.mlp import Mlp
from samestep.tf_impl.models.user_model import UserModel, build_user_model
from samestep.tf_impl.step import Logits
from samestep.tf_impl.techniques.applied import narrow_type, product_of, restructure

Value = TypeVar("Value")
"""What a program holds for one parameter: a variable, or the parts of one."""
ByName = Mapping[str, Value]
"""Values by neutral name."""
Make = Callable[[np.ndarray, str], tf.Variable]
"""(initial value, neutral name) -> a variable."""


def make_variable(value: np.ndarray, name: str) -> tf.Variable:
    """Makes a variable, wherever the scope of a strategy puts it.

    Args:
        value: The initial value.
        name: The neutral name.
    """
    return tf.Variable(value, name=name.replace("/", "_"))


def make_buffer(value: np.ndarray, name: str) -> tf.Variable:
    """Makes a variable of which each replica has its own copy; outside of replicas, the first replica's copy counts.

    Args:
        value: The initial value.
        name: The neutral name.
    """
    return tf.Variable(
        value,
        trainable=False,
        name=name.replace("/", "_"),
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


def make_like(variable: tf.Variable, value: tf.Tensor) -> tf.Variable:
    """Makes an untrained variable where another one is; each replica has its own copy if that is so for the other one.

    Args:
        variable: The other variable.
        value: The initial value.
    """
    on_read = tf.VariableSynchronization.ON_READ
    if variable.synchronization is not on_read:
        return tf.Variable(value, trainable=False)
    return tf.Variable(value, trainable=False, synchronization=on_read, aggregation=variable.aggregation)


def fresh_model(
    run: Run, make: Make = make_variable, lookup: Lookup = tf.gather
) -> tuple[Logits, dict[str, tf.Variable]]:
    """Builds the workload's model with its initial weights, in the run's dtype.

    Args:
        run: What is trained.
        make: Makes each variable.
        lookup: Looks up rows of the tables.

    Returns:
        The model, and its variables by neutral name.
    """
    spec = run.workload.model
    if not spec.facts.is_built_here:
        prepare(run)
        own = build_user_model(spec, run.dtype, narrow_type(run))
        own.switch_layers(run, spec.facts.habits.running)
        for variable, value in ((own.params[name], value) for name, value in init(spec, run.seed).items()):
            variable.assign(value)
        for name, value in initial_buffers(spec).items():
            own.buffers[name].assign(value)
        return own, own.params
    values = initial_weights(run.workload.model, run.seed)
    buffers = initial_buffers(spec)
    factory = VariableFactory(
        lambda name: make(values[name].astype(run.dtype), name),
        product_of(run),
        lookup,
        lambda name: make_buffer(buffers[name].astype(run.dtype), name),
        run,
    )
    model = build_model(run.workload.model, factory)
    restructure(run, model)
    return model, factory.by_name


def buffers_of(model: Logits) -> dict[str, tf.Variable]:
    """Returns the variables of a model that are not trained, by neutral name."""
    if isinstance(model, UserModel):
        return model.buffers
    norms = model.norms.values() if isinstance(model, Mlp | BabyCNN) else ()
    return {name: buffer for norm in norms for name, buffer in norm.buffers.items()}


def empty_slots(run: Run, variables: Mapping[str, tf.Variable]) -> dict[str, dict[str, tf.Variable]]:
    """Makes the optimizer's state of variables, by slot and name; must be called in the scope of the variables.

    Args:
        run: What is trained.
        variables: The variables of the trained parameters, by name.
    """
    params, optimizer = run.workload.model.params(), run.optimizer
    held = {name: dataclasses.replace(params[name], shape=tuple(each.shape)) for name, each in variables.items()}
    kept = {name: optimizer.state(param) for name, param in held.items()}
    return {
        slot: {
            name: make_like(variables[name], tf.zeros(shapes[slot], variables[name].dtype))
            for name, shapes in kept.items()
            if slot in shapes
        }
        for slot in optimizer.slots
    }


def snapshot(
    step: int,
    params: ByName[Value],
    slots: Mapping[str, ByName[Value]],
    read: Callable[[Value], np.ndarray],
    buffers: Mapping[str, tf.Variable],
    skipped: int,
) -> TrainState:
    """Reads the state of a program.

    Args:
        step: The steps taken so far.
        params: What the program holds for each parameter.
        slots: What it holds of each kind of optimizer state.
        read: Reads the full array of one parameter.
        buffers: The model's buffers, as `buffers_of` returns them.
        skipped: How many steps were skipped.
    """
    full, *full_slots = ({name: read(held) for name, held in kind.items()} for kind in (params, *slots.values()))
    kept = {name: buffer.numpy() for name, buffer in buffers.items()}
    return TrainState(step, full, dict(zip(slots, full_slots, strict=True)), kept, skipped=skipped)


def restore(
    state: TrainState,
    dtype: str,
    params: ByName[Value],
    slots: Mapping[str, ByName[Value]],
    write: Callable[[Value, np.ndarray], object],
    buffers: Mapping[str, tf.Variable],
) -> None:
    """Writes a state into a program, the inverse of `snapshot`.

    Args:
        state: The state, in any dtype.
        dtype: The dtype of the program's variables.
        params: What the program holds for each parameter.
        slots: What it holds of each kind of optimizer state.
        write: Writes the full array of one parameter.
        buffers: The model's buffers, as `buffers_of` returns them.
    """
    for held, values in ((params, state.params), *((slots[slot], state.slots[slot]) for slot in slots)):
        for name in held:
            write(held[name], values[name].astype(dtype))
    for name, buffer in buffers.items():
        buffer.assign(state.buffers[name].astype(buffer.dtype.as_numpy_dtype))


def trained(run: Run, held: ByName[Value]) -> dict[str, Value]:
    """Returns what a program holds for the parameters that are not frozen.

    Args:
        run: What is trained.
        held: What the program holds for each parameter.
    """
    params = run.workload.model.params()
    return {name: each for name, each in held.items() if not params[name].frozen}


def nbytes(values: Iterable[tf.Variable | tf.Tensor]) -> int:
    """Returns the bytes of tensors together, from their shapes and dtypes."""
    return sum(value.shape.num_elements() * value.dtype.size for value in values)


def dtype_names(values: Iterable[tf.Variable | tf.Tensor]) -> str:
    """Returns the dtypes of tensors, such as "float32"."""
    return "+".join(sorted({value.dtype.name for value in values}))
