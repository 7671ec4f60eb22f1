"""The process that describes or traces the user's model. Before there is a run, no other process imports the user's file."""

import importlib
import os
import sys
from pathlib import Path

import pydantic

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import save_arrays
from samestep.common.files.reading import read_json
from samestep.common.files.writing import replacing
from samestep.common.porting import model_trace
from samestep.common.request import FRAMEWORKS
from samestep.common.runtime.directory import ANSWERED, DESCRIBE, IMPORTS, write_json
from samestep.common.runtime.imports import imported_since, own_modules
from samestep.common.workload import code
from samestep.common.workload.data.as_given import flattened, read_as_given
from samestep.common.workload.data.dataset import ARRAYS, Split
from samestep.common.workload.declaration import split_file
from samestep.common.workload.declared import import_file, own_lines, raised_in
from samestep.common.workload.models.description import DATA
from samestep.common.workload.outputs import call_printing


def is_asked(directory: Path) -> bool:
    """Returns whether a directory holds a request for a description or a trace, and not a run."""
    return any(os.path.exists(directory / name) for name in (DESCRIBE, model_trace.ASKED))


def answer(directory: Path) -> None:
    """Makes what the request in a directory asks for.

    Raises:
        ConfigError: The file, the model or the data are invalid.
    """
    if os.path.exists(directory / DESCRIBE):
        describe(directory)
    else:
        trace_model(directory)
    (directory / ANSWERED).touch()


def trace_model(directory: Path) -> None:
    """Traces the model that a directory names, or saves or loads its weights.

    Args:
        directory: The directory with the request and the weights, in which the result is written.

    Raises:
        ConfigError: The user's code fails.
    """
    asked = pydantic.TypeAdapter(model_trace.TraceRequest).validate_python(read_json(directory / model_trace.ASKED))
    split = read_data(directory, asked.data, asked.framework)
    if asked.batch_size > (examples := len(split.train_targets)):
        raise ConfigError(
            f"--batch-size {asked.batch_size} is more than the {examples} examples there are; give {examples} or less."
        )
    mirror = importlib.import_module(f"{FRAMEWORKS[asked.framework]}.port")
    getattr(mirror, asked.task)(directory, asked, split)


def describe(directory: Path) -> None:
    """Describes the model that a directory names.

    Args:
        directory: Holds `describe.json`; the description goes into it.

    Raises:
        ConfigError: The file, the model or the data are invalid.
    """
    asked = read_json(directory / DESCRIBE)
    assert isinstance(asked, dict)
    modules, environment = set(sys.modules), dict(os.environ)
    framework, source, data = asked["framework"], asked["model"], asked["data"]
    split = read_data(directory, data, framework)
    mirror = importlib.import_module(f"{FRAMEWORKS[framework]}.describe")
    try:
        mirror.describe(directory, source, split, asked["seed"])
    except Exception as raised:
        if said := raised_in(raised, source):  # in any pass that examines it
            raise ConfigError(f"--model {source}: {said}") from raised
        raise
    write_json(directory / code.CODE, own_modules() | code.ran())
    write_json(directory / IMPORTS, imported_since(modules, environment, code.ran()))


def read_data(directory: Path, data: str, framework: str) -> Split:
    """Reads the user's arrays from a file or a function; those of a function are kept next to the description.

    Args:
        directory: The folder of the description.
        data: ARRAYS.npz, or FILE.py:FUNCTION.
        framework: The framework of this process.

    Raises:
        ConfigError: The arrays cannot be read, or no model can be trained on them.
    """
    file, name = split_file(data)
    if not (file and name):
        return read_as_given(data)
    function = getattr(import_file(str(Path(file).resolve()), framework), name, None)
    if not callable(function):
        raise ConfigError(f"--data {data}: {file} has no function '{name}'.")
    try:
        found = call_printing(function)
        arrays = found if isinstance(found, dict) else dict(zip(ARRAYS, found, strict=True))
        with replacing(directory / DATA) as file:
            save_arrays(file, flattened(arrays))
    except ConfigError as error:
        raise ConfigError(f"--data {data}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"--data {data}: {name}() has to return the arrays {', '.join(ARRAYS)}, in this order or by name; "
            f"{own_lines(error, str(Path(file).resolve()))}"
        ) from error
    try:
        return read_as_given(str(directory / DATA))
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(directory / DATA), data)) from None
