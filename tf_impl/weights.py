"""Neutral names <-> TensorFlow's variables. The layouts are the same."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np
import tensorflow as tf

from samestep.common.program import TrainState
from samestep.common.strategy import Run
from samestep.common.workload.initial import init
from samestep.tf_impl.models import build_model

Held = TypeVar("Held")
"""What a program holds for one parameter: a variable, or the parts of one."""
ByName = Mapping[str, Held]
"""By neutral name."""
Make = Callable[[np.ndarray, str], tf.Variable]
"""(initial value, neutral name) -> a variable."""
Lookup = Callable[[tf.Variable, tf.Tensor], tf.Tensor]
"""Gathers rows [..., columns] of a table by ids [...], wherever the table is."""


def make_variable(value: np.ndarray, name: str) -> tf.Variable:
    """Makes a variable, wherever the scope of a strategy puts it."""
    return tf.Variable(value, name=name.replace("/", "_"))


class NamedVariables:
    """A variable factory that remembers what it made, by neutral name."""

    def __init__(self, run: Run, make: Make, lookup: Lookup) -> None:
        self._values, self._dtype, self._make = init(run.workload.model, run.seed), run.dtype, make
        self.lookup = lookup
        self.by_name: dict[str, tf.Variable] = {}

    def __call__(self, name: str) -> tf.Variable:
        """Makes the variable of a name, holding its initial value."""
        self.by_name[name] = self._make(self._values[name].astype(self._dtype), name)
        return self.by_name[name]


def fresh_model(
    run: Run, make: Make = make_variable, lookup: Lookup = tf.gather
) -> tuple[tf.Module, dict[str, tf.Variable]]:
    """Builds the workload's model with its initial weights, in the run's dtype.

    Args:
        run: What is trained.
        make: Makes each variable.
        lookup: Looks up rows of the tables.

    Returns:
        The model, and its variables by neutral name.
    """
    variables = NamedVariables(run, make, lookup)
    return build_model(run.workload.model, variables), variables.by_name


def zeros_like(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Variable]:
    """Makes one kind of optimizer state, zero, for every variable; call it in the same scope."""
    return {name: tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for name, v in variables.items()}


def snapshot(
    step: int, params: ByName[Held], slots: Mapping[str, ByName[Held]], read: Callable[[Held], np.ndarray]
) -> TrainState:
    """Reads the state of a program.

    Args:
        step: The steps taken so far.
        params: What the program holds for each parameter.
        slots: What it holds of each kind of optimizer state.
        read: Reads the full array of one parameter.
    """
    full, *full_slots = ({name: read(held) for name, held in kind.items()} for kind in (params, *slots.values()))
    return TrainState(step, full, dict(zip(slots, full_slots, strict=True)))


def restore(
    state: TrainState,
    dtype: str,
    params: ByName[Held],
    slots: Mapping[str, ByName[Held]],
    write: Callable[[Held, np.ndarray], object],
) -> None:
    """Writes a state into a program, the inverse of `snapshot`.

    Args:
        state: In any dtype.
        dtype: Of the program's variables.
        params: What the program holds for each parameter.
        slots: What it holds of each kind of optimizer state.
        write: Writes the full array of one parameter.
    """
    for held, values in ((params, state.params), *((slots[slot], state.slots[slot]) for slot in slots)):
        for name in held:
            write(held[name], values[name].astype(dtype))


def nbytes(values: Iterable[tf.Variable | tf.Tensor]) -> int:
    """The bytes of tensors together, from their shapes and dtypes."""
    return sum(value.shape.num_elements() * value.dtype.size for value in values)
