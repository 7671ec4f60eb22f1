"""Imports a user's file, and calls what it declares. It uses only the standard library."""

import ast
import functools
import importlib.metadata
import importlib.util
import re
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path

from samestep.common.errors import ConfigError, SamestepError, first_line
from samestep.common.frameworks import conventions
from samestep.common.workload import code
from samestep.common.workload.array_type import Array
from samestep.common.workload.bound_names import check_name, no_such_model
from samestep.common.workload.declaration import BUILDERS, Model, split_file
from samestep.common.workload.outputs import Returned, call_printing

DEFAULT_NAME = "model"
OFFERS = "samestep.models"
"""The group of entry points under which an installed package offers models."""
_PACKAGE = str(Path(__file__).parents[2])
_EXCHANGES = {"distributed", "distribute"}
"""The folders of torch and TensorFlow in whose code a call may fail because another process has ended."""


def split_source(source: str) -> tuple[Path, str]:
    """Splits `FILE.py:NAME` into the file and the name; the default name is `model`.

    Raises:
        ConfigError: The source names no Python file.
    """
    file, name = split_file(source)
    if not file:
        offered = ", ".join(sorted(_offers(source))) or "none"
        raise ConfigError(
            f"--model {source} names no Python file; give FILE.py or FILE.py:NAME, or a model that an installed package offers "
            f"({offered})."
        )
    if not (path := Path(file)).is_file():
        raise ConfigError(f"--model {source}: there is no file {path}{', but a folder' * path.is_dir()}.")
    return path, name or DEFAULT_NAME


def _offers(source: str) -> dict[str, importlib.metadata.EntryPoint]:
    """Returns the models that installed packages offer, by name, without importing them; empty if the source is a Python file."""
    return (
        {} if split_file(source)[0] else {entry.name: entry for entry in importlib.metadata.entry_points(group=OFFERS)}
    )


def absolute_source(source: str) -> str:
    """Spells the source of a model such that any process finds it: a file's path becomes absolute, and a package's name stays.

    Raises:
        ConfigError: The source is neither a Python file nor a model that an installed package offers.
    """
    if source in _offers(source):
        return source
    path, name = split_source(source)
    check_name(source, path, name)
    return f"{path.resolve()}:{name}"


@functools.cache
def load_model(source: str, framework: str) -> Model:
    """Imports the user's file, or a package that offers models, into a process of one framework, and returns the model.

    Args:
        source: `FILE.py`, `FILE.py:NAME`, or the name under which a package offers the model.
        framework: The framework of this process.

    Raises:
        ConfigError: The file cannot be imported, imports the other framework, or has no such model.
    """
    if source in (offers := _offers(source)):
        try:
            found = offers[source].load()
        except Exception as error:
            raise ConfigError(f"--model {source}: {offers[source].value} cannot be imported: {error}") from error
        if not isinstance(found, Model):
            raise ConfigError(f"--model {source}: {offers[source].value} is not a samestep.Model.")
        return found
    path, name = split_source(source)
    module = import_file(str(path.resolve()), framework)
    if isinstance(found := getattr(module, name, None), Model):
        return found
    models = [key for key, value in vars(module).items() if isinstance(value, Model)]
    if found is not None:
        raise ConfigError(f"--model {source}: {name} is {type(found).__name__}, not a samestep.Model.")
    raise no_such_model(source, path, name, models)


@functools.cache
def import_file(path: str, framework: str) -> types.ModuleType:
    """Imports a file as a module. It can import files next to it, and files of the current folder that shadow no Python module.

    Args:
        path: The absolute path of the file.
        framework: The framework of this process; the other one must not be imported.

    Raises:
        ConfigError: The import fails; the message has the error and the user's own lines.
    """
    try:
        content = code.read(path)
        _refuse_other_framework(path, content, framework)
        behind = next((place for place, each in enumerate(sys.path) if each.endswith("-packages")), len(sys.path))
        sys.path[:] = [str(Path(path).parent), *sys.path[:behind], str(Path.cwd()), *sys.path[behind:]]
        spec = importlib.util.spec_from_file_location(Path(path).stem, path)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        call_printing(exec, compile(content, path, "exec"), vars(module))  # the bytes that were checked
    except ConfigError as error:
        if path in str(error):
            raise
        raise ConfigError(f"--model {path}: {own_lines(error, path).removeprefix('ConfigError: ')}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"--model {path} cannot be imported: {own_lines(error, path)}") from error
    return module


def _refuse_other_framework(path: str, content: bytes, framework: str) -> None:
    """Refuses an import of the other framework at the top level of the file: torch and TensorFlow never share a process."""
    source = importlib.util.decode_source(content)
    foreign = {name for other in BUILDERS if other != framework for name in conventions(other).modules}
    for node in ast.parse(source, path).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name.partition(".")[0] in foreign:
                line = source.splitlines()[node.lineno - 1].strip()
                raise ConfigError(
                    f"--model {path}: line {node.lineno}, `{line}`, imports {name} into the processes of {framework}; move "
                    f"the line into the function that builds the other model."
                )


def own_lines(error: BaseException, path: str) -> str:
    """Returns an error in the user's code, with the lines of the user's files that led to it.

    Args:
        error: The error that was raised.
        path: The user's file; everything in its folder is the user's.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename, path)]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno} `{f.line}`" for f in reversed(frames))
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"SyntaxError: {error.msg} ({Path(path).name}:{error.lineno} `{(error.text or '').strip()}`)"
    last = error
    while last.__cause__ is not None and not isinstance(error, ConfigError):
        last = last.__cause__
    cause = f"; the cause is {_first_line(last)}" if last is not error else ""
    return _first_line(error) + cause + (f" ({where})" if where else "")


def _is_theirs(filename: str, path: str) -> bool:
    """Returns whether code is in the folder of the user's file and belongs neither to us nor to an installed package."""
    is_ours = filename.startswith(_PACKAGE) and not path.startswith(_PACKAGE)
    return filename.startswith(str(Path(path).parent)) and not is_ours and "site-packages" not in filename


def _is_ours(filename: str) -> bool:
    return filename.startswith(_PACKAGE) and "site-packages" not in filename.removeprefix(_PACKAGE)


def raised_in(error: Exception, source: str) -> str:
    """Returns an error of a run as `own_lines` does, if the user's own code caused it; "" if other code may have caused it.

    An error that a package raises counts as the user's if the user's line called it, unless other processes may be involved.

    Args:
        error: The error that was raised.
        source: The source of the model.
    """
    if isinstance(error, SamestepError) or source in _offers(source):
        return ""
    path = str(split_source(source)[0].resolve())
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_theirs(frame.filename, path):
            return own_lines(error, path)
        is_ours = _is_ours(frame.filename) and not isinstance(error, RecursionError)  # which may be raised anywhere
        if is_ours or _EXCHANGES.intersection(Path(frame.filename).parts):
            return ""
    return ""


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


IDS = " (whole numbers are ids; make images real numbers, as in `inputs / 255`)"
"""The hint in a message about whole-number inputs that a model could not take."""


_OF_DOUBLE = r"of double is not in the list|not implemented for 'Double'|DT_DOUBLE"
_LACKS_FLOAT64 = (
    "; steps are checked in float64, in which the framework lacks this operation: use another one, or samestep record"
)


def call_user(function: Callable[..., Returned], source: str, what: str, *arguments: object) -> Returned:
    """Calls a user's function, and reports its errors as the user's.

    Args:
        function: The function of the user's file.
        source: The source of the model, for messages.
        what: A description of the function, for messages.
        *arguments: The arguments of the call.

    Raises:
        ConfigError: The function raised an error.
    """
    try:
        return call_printing(function, *arguments)
    except ConfigError as error:
        raise ConfigError(f"--model {source}: {str(error).removeprefix(f'--model {source}: ')}") from error
    except (Exception, SystemExit) as error:
        offered = _offers(source).get(source)
        path = Path(sys.modules[offered.module].__file__ or "") if offered else split_source(source)[0]
        told = own_lines(error, str(path.resolve()))
        more = _LACKS_FLOAT64 if re.search(_OF_DOUBLE, told) else ""
        raise ConfigError(f"--model {source}: {what} failed: {told}{more}") from error


def call_metric(metric: Callable[..., object], source: str, outputs: Array, targets: Array) -> float:
    """Calls the user's metric.

    Args:
        metric: The user's metric.
        source: The source of the model, for messages.
        outputs: The outputs of the model, [examples, ...].
        targets: The targets, [examples, ...].

    Raises:
        ConfigError: The metric raises an error, or does not return a number.
    """
    value = call_user(metric, source, f"the metric of outputs {list(outputs.shape)}", outputs, targets)
    try:
        return float(value)  # pyrefly: ignore
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise ConfigError(f"--model {source}: the metric returns {kind}, not one number for all examples.") from None
