"""Whether a run can be started here, as asked: refused before any process starts."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.catalog import require_row
from samestep.common.errors import ConfigError
from samestep.common.request import Launch
from samestep.common.runtime.directory import refuse_taken
from samestep.common.runtime.state_file import read_state
from samestep.common.strategy import Run


def check_launch(run: Run, launch: Launch) -> str:
    """Makes sure that a run can be started.

    Args:
        run: From `parse`.
        launch: From the same request.

    Returns:
        What the user should know before it starts; "" if there is nothing.

    Raises:
        ConfigError: The directory is taken, or the state to start from does not fit.
        Unavailable: The framework is not installed, or something else that the run needs is missing.
    """
    note = _check_start(run, launch)
    if launch.out is not None:
        refuse_taken(Path(launch.out))
    require_row(run.framework, run.strategy.name)  # late: a wrong request is wrong on every machine
    if not launch.prepare:
        run.strategy.available(run)
    return note


def _check_start(run: Run, launch: Launch) -> str:
    """Refuses a state that the run could not continue."""
    if launch.start_from is None:
        return ""
    if run.strategy.compiled_cores(run.options):
        raise ConfigError(f"{run.name} compiles here and trains nothing to continue; leave out --start-from.")
    state = read_state(Path(launch.start_from))
    given = f"--start-from {launch.start_from}"
    if state.step >= run.steps:
        raise ConfigError(f"{given} is at step {state.step}; --steps counts from zero, give more than {state.step}.")
    held, wanted = _shapes(state.params), {name: param.shape for name, param in run.workload.model.params().items()}
    for name in {**wanted, **held}:
        if held.get(name) != wanted.get(name):
            raise ConfigError(
                f"{given} holds another model: its {name} is {_spell(held.get(name))}, that of {run.workload.name} is "
                f"{_spell(wanted.get(name))}; give the --workload that its config.json names."
            )
    if set(state.slots) != set(run.optimizer.slots):
        raise ConfigError(
            f"{given} holds {', '.join(state.slots) or 'no slots'}, but {run.optimizer.name} continues from "
            f"{', '.join(run.optimizer.slots)}; give the --optimizer that its config.json names."
        )
    if state.local and len(state.local) != run.num_devices:
        kept = ", ".join(dict.fromkeys(name for arrays in state.local for name in arrays))
        return f"{given} has local state ({kept}) of {len(state.local)} devices; on {run.num_devices} it starts anew."
    return ""


def _shapes(params: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in params.items()}


def _spell(shape: tuple[int, ...] | None) -> str:
    return "not there" if shape is None else str(list(shape))
