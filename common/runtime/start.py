"""Reads the state that a run continues, and refuses it if the run could not continue from it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.features.used import initial_buffers
from samestep.common.files.reading import Unreadable
from samestep.common.program import OF_PARAMETERS, TrainState
from samestep.common.request import Launch
from samestep.common.runtime.checkpoints.committed import read_saved
from samestep.common.runtime.checkpoints.foreign import is_foreign, read_foreign
from samestep.common.strategy import Run
from samestep.common.workload.initial import empty_slots, init
from samestep.common.workload.models.parameters import trained
from samestep.common.workload.optimizers.spec import Shape


def read_start(run: Run, start_from: str) -> TrainState:
    """Reads the state that a run starts from.

    Args:
        run: The run that continues it.
        start_from: The directory, or the file.

    Raises:
        ConfigError: There is no state, it is of another model or optimizer, or training cannot continue from its numbers.
    """
    given, state = f"--start-from {start_from}", _read(run, Path(start_from))
    if state.step >= run.steps:
        raise ConfigError(f"{given} is at step {state.step}; --steps counts from zero, give more than {state.step}.")
    opening, remedy = f"{given} holds another model: its", "give the --workload that its config.json names"
    if is_foreign(Path(start_from)):
        remedy = f"give weights of {run.workload.name}, or another model"
    groups = {"params": state.params, **state.slots}
    params = run.workload.model.params()
    _check_arrays(run, {name: param.shape for name, param in params.items()}, state.params, opening, remedy)
    if run.workload.model.facts.has_oracle:  # else another framework may have other buffers
        groups["buffers"] = state.buffers
        buffers = {name: buffer.shape for name, buffer in initial_buffers(run.workload.model).items()}
        _check_arrays(run, buffers, state.buffers, opening, remedy)
    if set(state.slots) != set(run.optimizer.slots):
        raise ConfigError(
            f"{given} holds {', '.join(state.slots) or 'no slots'}, but {run.optimizer.name} continues from "
            f"{', '.join(run.optimizer.slots)}; give the --optimizer that its config.json names."
        )
    for slot, arrays in state.slots.items():
        remedy = "give the directory of a finished run"
        kept = {name: run.optimizer.state(param) for name, param in trained(params).items()}
        wanted = {name: shapes[slot] for name, shapes in kept.items() if slot in shapes}
        _check_arrays(run, wanted, arrays, f"{given} is damaged: its {slot} of", remedy)
    _check_residuals(run, state, given)
    for group, arrays in groups.items():
        for name, array in arrays.items():
            _check_numbers(run, array, f"{given}: {group} of {name}")
    return state


def _read(run: Run, path: Path) -> TrainState:
    """Reads a state that we or another program wrote."""
    if not is_foreign(path):
        return read_saved(path)
    try:
        return read_foreign(run, path)
    except Unreadable as error:
        raise ConfigError(
            f"--start-from {path}: {error}; give another {'folder' if path.is_dir() else 'file'}."
        ) from None


def _check_residuals(run: Run, state: TrainState, given: str) -> None:
    """Refuses local state that does not have the shapes of its parameters, or is not finite."""
    params = run.workload.model.params()
    for key, array in ((key, array) for arrays in state.local for key, array in arrays.items()):
        kind, _, name = key.partition("/")
        own = dict.fromkeys(OF_PARAMETERS, params[name].shape) if name in params else {}
        own |= run.optimizer.state(params[name]) if own else {}
        if kind in own:
            _check_arrays(
                run,
                {name: own[kind]},
                {name: array},
                f"{given} is damaged: its {kind} of",
                "give the directory of a finished run",
            )
            _check_numbers(run, array, f"{given}: {key}")


def _check_arrays(
    run: Run, wanted: Mapping[str, Shape], held: Mapping[str, np.ndarray], opening: str, remedy: str
) -> None:
    """Refuses arrays whose names or shapes are not those of the model.

    Args:
        run: What is trained.
        wanted: The shapes that the run has, by name.
        held: Arrays of the state: the parameters, the buffers, or one kind of optimizer state.
        opening: The opening of the message.
        remedy: The end of the message.
    """
    shapes = {name: array.shape for name, array in held.items()}
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


def initial_state(run: Run, launch: Launch) -> TrainState:
    """Returns the state that the run starts from.

    Args:
        run: What is trained.
        launch: How it is started; it names the run to continue, if there is one.
    """
    if launch.start_from is not None:
        return _read(run, Path(launch.start_from))
    params = init(run.workload.model, run.seed)
    slots = empty_slots(run.optimizer, run.workload.model.params())
    return TrainState(0, params, slots, initial_buffers(run.workload.model))
