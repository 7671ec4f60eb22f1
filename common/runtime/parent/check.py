"""Checks whether a run can be started here as requested, before any process starts."""

import dataclasses
import math
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from samestep.common.catalog import framework_info, require_row
from samestep.common.errors import ConfigError, Unavailable, count
from samestep.common.files.reading import memory_bytes
from samestep.common.frameworks import conventions
from samestep.common.request import DTYPES, Launch
from samestep.common.runtime.checkpoints.committed import find_folders
from samestep.common.runtime.directory import refuse_taken
from samestep.common.runtime.parent.merge import command
from samestep.common.runtime.records import load_result
from samestep.common.runtime.state_file import STATE
from samestep.common.strategy import Run
from samestep.common.techniques.used import used
from samestep.common.workload.data.dataset import load
from samestep.common.workload.models.spec import num_params

OPEN_FILES, OPEN_FILES_PER_PROCESS = 64, 16
"""The most files that a process opens: for the import of its framework, and for its connections to each peer. Both are twice
what was measured."""

_MOST_COPIES = 4
"""The most copies of the weights on a device. An engine that keeps master weights has two of four bytes; padding needs room."""


def check_launch(run: Run, launch: Launch, is_here: bool = True) -> str:
    """Makes sure that a run can be started.

    Args:
        run: The run from `parse`.
        launch: The launch from the same request.
        is_here: Whether its processes are started on this machine.

    Returns:
        Notes for the user to read before the run starts; "" if there are none.

    Raises:
        ConfigError: The directory is taken, the state to start from does not fit, or no step would be compressed.
        Unavailable: The framework is not installed, or something else that the run needs is missing.
    """
    for technique in used(run.techniques):
        technique.refuse_launch(run)
    if launch.elastic is not None:
        from samestep.common.runtime.parent.elastic import check_elastic  # here, like those below: few runs ask for it

        check_elastic(run, launch, launch.elastic)
    if not is_here and launch.bandwidth is not None:
        raise ConfigError(
            "--bandwidth limits links on this machine, and an engine starts these processes; leave it out."
        )
    processes = len(run.strategy.topology(run))
    notes = [*_notes_on_own(run, launch)] if launch.model or launch.data else []
    if launch.start_from is not None:
        notes.append(_check_start(run, launch.start_from))
    notes += [technique.note(run) for technique in used(run.techniques)]
    if launch.out is not None:
        refuse_taken(Path(launch.out))
    if launch.save_every is not None:
        _check_disk(run, launch)
    require_row(run.framework, run.strategy.name)  # last, so an invalid request gets the same error on every machine
    if is_here and not launch.prepare:
        _check_memory(run)
        allow_open_files(processes)
        framework_info(run.framework).available(run)
        run.strategy.available(run)
    return "\n".join(filter(None, notes))


def _notes_on_own(run: Run, launch: Launch) -> Iterator[str]:
    """Yields notes for the user on their own data and model, one line each; some are empty."""
    if launch.data is not None:
        from samestep.common.workload.data.user_notes import notes_on

        yield from notes_on(launch.data, run.workload.model, load(run.workload.data))
    are_kept = run.arithmetic != run.techniques.gathered(run.dtype)
    if (dtypes := run.workload.model.facts.dtypes) and not are_kept:
        from samestep.common.workload.models.dtypes import note_on_dtypes

        note = note_on_dtypes(run.framework, dtypes, run.dtype)
        others = {name for name, dtype in dtypes.items() if dtype != run.dtype}
        if others & run.workload.model.params().keys() and not conventions(run.framework).casts_parameters:
            raise ConfigError(f"{run.workload.name}: {note}.")  # they would be judged, and packed, as if of that dtype
        yield note and f"{run.workload.name}: {note}."
    if (casts := run.workload.model.facts.casts) and run.dtype == "float64":
        from samestep.common.features.feature import count_layers

        yield (
            f"{run.workload.name}: {count_layers(casts, 'layer')} cast to float32; in this float64 run they keep float64."
        )


def _check_memory(run: Run) -> None:
    """Refuses a run whose weights do not fit into this machine's memory. If they obviously fit, no costs are computed."""
    if _MOST_COPIES * num_params(run.workload.model) * run.item_bytes <= memory_bytes():
        return
    needed = max(footprint.params_bytes for footprint in run.strategy.cost(run, run.strategy.backend).footprints)
    if needed > memory_bytes() and not run.strategy.compiled_cores(run.options):
        raise Unavailable(
            f"the weights of {run.workload.name} take {needed / 2**30:.3g} GiB on a device, and this machine has "
            f"{memory_bytes() / 2**30:.3g} GiB; choose smaller sizes, or --prepare the run for another machine."
        )


def _check_disk(run: Run, launch: Launch) -> None:
    """Refuses to save checkpoints if the disk has no room for those that are kept and the next one, which is being written."""
    numbers = sum(
        param.size + sum(math.prod(shape) for shape in run.optimizer.state(param).values())
        for param in run.workload.model.params().values()
    )
    needed = numbers * DTYPES[run.dtype] * (launch.keep + 1)
    place = Path(launch.out or "runs").absolute()
    free = shutil.disk_usage(next(each for each in (place, *place.parents) if each.is_dir())).free
    if needed > free:
        raise Unavailable(
            f"--save-every {launch.save_every} --keep {launch.keep} needs {needed / 2**30:.3g} GiB below {place}, which has "
            f"{free / 2**30:.3g} GiB free; keep fewer, or name another --out."
        )


def _check_start(run: Run, start_from: str) -> str:
    """Refuses a state from which the run could not continue; returns a note if local state is reset, else ""."""
    if run.strategy.compiled_cores(run.options):
        raise ConfigError(f"{run.name} compiles here and trains nothing to continue; leave out --start-from.")
    given = f"--start-from {start_from}"
    refuse_stateless(Path(start_from), given)
    from samestep.common.runtime.start import read_start

    state = read_start(run, start_from)
    if state.local and len(state.local) != run.num_devices:
        kept = ", ".join(dict.fromkeys(name.partition("/")[0] for arrays in state.local for name in arrays))
        return f"{given} has local state ({kept}) of {count(len(state.local), 'device')}; on {run.num_devices} it is reset."
    return ""


def refuse_stateless(directory: Path, given: str) -> None:
    """Refuses a run without its state; the message names its newest checkpoint and the command that keeps the state.

    Args:
        directory: The directory of a run, or any other.
        given: The flag that named it, for the message.

    Raises:
        ConfigError: The directory holds a run that did not keep its state.
    """
    if os.path.exists(directory / STATE) or not os.path.exists(directory / "result.json"):  # no error for long paths
        return
    result = load_result(directory)
    if not result.compiled:
        again = command(dataclasses.replace(result.config, keep_state=True))
        saved = next((f" take its checkpoint {each}, or" for each in find_folders(directory)), "")
        raise ConfigError(
            f"{given} holds a run that did not keep its state;{saved} repeat it with --keep-state: {again}"
        )


def allow_open_files(processes: int) -> None:
    """Lets this process, and those that it starts, open as many files as a run needs.

    Args:
        processes: The number of processes of the run.

    Raises:
        Unavailable: The system allows fewer.
    """
    needed = OPEN_FILES + OPEN_FILES_PER_PROCESS * processes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Unavailable(
            f"{processes} process{'es' if processes > 1 else ''} may need {needed} open files each, and this system allows "
            f"{hard}; allow more with: ulimit -n {needed}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
