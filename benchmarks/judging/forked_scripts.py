"""Records small scripts, such as `alarm_script.py`, in processes forked from one that has imported torch.

The import takes longer than the scripts. Existing records are reused.
"""

import atexit
import contextlib
import dataclasses
import gc
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.judging.alarm_script import LAYOUTS, STEPS
from museum.forks import run_forked
from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.files.removing import discard_all
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import rank_files
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.rerun_folder import count_steps
from samestep.experiments.recording.reruns import Reruns
from samestep.experiments.recording.start import prepared
from samestep.torch_impl.recording import install

SCRIPT = Path(__file__).parent / "alarm_script.py"


def begin(store: Path) -> None:
    """Prepares this process to be forked.

    Args:
        store: The folder for the records.
    """
    import torch._dynamo  # every optimizer imports it in its first step; imported here, as it takes as long as torch
    import torch.distributed.fsdp

    store.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # a pool of threads would not survive a fork
    gc.freeze()  # the recorder looks through all objects of a script, and these are not the script's


def recorded(store: Path, name: str, words: Sequence[str], num_steps: int = STEPS, script: Path = SCRIPT) -> Reruns:
    """Returns the record of a script; records it if there is none.

    Args:
        store: The folder of the records.
        name: "A" or "B".
        words: The arguments of the script.
        num_steps: The number of steps that it takes.
        script: The script.
    """
    directory = store / "-".join(word.removeprefix("--") for word in words)
    if not _is_whole(directory, num_steps):
        discard_all(directory)
        options = RecordOptions(str(directory), stop_after=num_steps)
        fork_off([sys.executable, str(script), *words], options, Path.cwd(), True)
    return Reruns(read_run(directory), directory.resolve(), name, fork_off)


def _is_whole(directory: Path, num_steps: int) -> bool:
    """Returns whether a record exists and is complete."""
    with contextlib.suppress(ConfigError):
        return bool(rank_files(directory)) and count_steps(read_run(directory)) == num_steps
    return False


def fork_off(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
    """Runs and records one of our commands in processes that have already imported torch; it is a `RunCommand`."""
    world = LAYOUTS.get(command[command.index("--layout") + 1], 1)
    full = dataclasses.replace(options, out=str(prepared(Path(options.out))), command=tuple(command))

    def run(rank: int) -> object:
        sys.argv = list(command[1:])
        install(full.to_json())
        kept = runpy.run_path(command[1], run_name="__main__")
        atexit._run_exitfuncs()
        return kept

    if not run_forked(run, world, is_group=world > 1):
        raise WorkerFailed(f"a process of {command} failed")
