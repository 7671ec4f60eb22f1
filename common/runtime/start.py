"""The state that a run continues: read, and refused where the run could not continue it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.program import TrainState
from samestep.common.runtime.state_file import read_state
from samestep.common.strategy import Run


def read_start(run: Run, start_from: str) -> TrainState:
    """Reads the state that a run starts from.

    Args:
        run: What continues it.
        start_from: The directory.

    Raises:
        ConfigError: There is none, it is of another model or optimizer, or its numbers cannot be trained on.
    """
    given, state = f"--start-from {start_from}", read_state(Path(start_from))
    if state.step >= run.steps:
        raise ConfigError(f"{given} is at step {state.step}; --steps counts from zero, give more than {state.step}.")
    _check_arrays(
        run, state.params, f"{given} holds another model: its", "give the --workload that its config.json names"
    )
    if set(state.slots) != set(run.optimizer.slots):
        raise ConfigError(
            f"{given} holds {', '.join(state.slots) or 'no slots'}, but {run.optimizer.name} continues from "
            f"{', '.join(run.optimizer.slots)}; give the --optimizer that its config.json names."
        )
    for slot, arrays in state.slots.items():
        _check_arrays(run, arrays, f"{given} is damaged: its {slot} of", "give the directory of a finished run")
    for group, arrays in {"params": state.params, **state.slots}.items():
        for name, array in arrays.items():
            _check_numbers(run, array, f"{given}: {group} of {name}")
    return state


def _check_arrays(run: Run, held: Mapping[str, np.ndarray], opening: str, remedy: str) -> None:
    """Refuses other names or shapes than those of the model's parameters.

    Args:
        run: What is trained.
        held: Parameters, or one kind of optimizer state.
        opening: Of the message.
        remedy: The end of the message.
    """
    shapes = {name: array.shape for name, array in held.items()}
    wanted = {name: param.shape for name, param in run.workload.model.params().items()}
    for name in {**wanted, **shapes}:
        if shapes.get(name) != wanted.get(name):
            raise ConfigError(
                f"{opening} {name} is {_spell(shapes.get(name))}, that of {run.workload.name} is "
                f"{_spell(wanted.get(name))}; {remedy}."
            )


def _spell(shape: tuple[int, ...] | None) -> str:
    return "not there" if shape is None else str(list(shape))


def _check_numbers(run: Run, array: np.ndarray, what: str) -> None:
    if array.dtype.kind != "f":
        raise ConfigError(f"{what} is {array.dtype}; give real numbers, float32 or float64.")
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.astype(run.dtype)).all()
    if not finite:
        raise ConfigError(
            f"{what} holds numbers that are not finite in {run.dtype}; start from a run that has not diverged."
        )
