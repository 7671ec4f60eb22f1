"""Writes a checkpoint, or the state of a finished run, as files that other programs read."""

import importlib
import os
from pathlib import Path

from samestep.common.catalog import framework_info, require
from samestep.common.errors import ConfigError
from samestep.common.files.access import check_there
from samestep.common.files.safetensors import SUFFIX, write_safetensors
from samestep.common.files.silence import silenced
from samestep.common.frameworks import FRAMEWORKS
from samestep.common.program import TrainState
from samestep.common.runtime.checkpoints.committed import read_saved
from samestep.common.runtime.checkpoints.usual_names import to_usual, usual_name
from samestep.common.runtime.parent.check import refuse_stateless


def export_state(directory: Path, framework: str, folder: Path) -> Path:
    """Writes the state in a directory; returns the path that was written.

    Args:
        directory: A checkpoint, or the directory of a finished run.
        framework: The framework whose checkpoint is written; "" for safetensors, with weights only.
        folder: A new folder.

    Raises:
        ConfigError: There is no readable state, or the folder is not empty.
        Unavailable: The framework that writes the format is not installed.
    """
    check_there(directory)
    refuse_stateless(directory, f"samestep export {directory}")
    state = read_saved(directory, "samestep export")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"-o {folder} is a file, and the export is a folder; name a new folder.")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"-o {folder} has something in it, which would be mixed with the export; name a new folder.")
    if framework:
        require(framework)
        os.environ.update(framework_info(framework).environment)
    folder.mkdir(parents=True, exist_ok=True)
    if not framework:
        write_safetensors(folder / f"model{SUFFIX}", _weights(state))
        return folder / f"model{SUFFIX}"
    with silenced():  # TensorFlow 2.21 logs what it finds on the machine at any log level
        importlib.import_module(f"{FRAMEWORKS[framework]}.exported").write_exported(state, folder)
    return folder


def _weights(state: TrainState) -> dict:
    """Returns parameters and buffers, by their usual names."""
    params = {usual_name(name): to_usual(name, array) for name, array in state.params.items()}
    return params | {name.replace("/", "."): array for name, array in state.buffers.items()}
