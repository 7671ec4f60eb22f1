"""Imports the framework of a process: of a fork server before it forks, or of a worker that something else started.

A fork server also imports the packages that were imported when a user's model was described, but not the user's file. Later
workers then share these imports, which take seconds.
"""

import contextlib
import dataclasses
import functools
import gc
import importlib
import os
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from samestep.common.catalog import framework_info
from samestep.common.files.reading import Unreadable, read_sha256

_INSTALLED = ("site-packages", "dist-packages")
_OURS = __name__.partition(".")[0]


@dataclasses.dataclass(frozen=True)
class Imports:
    """Modules to import.

    Attributes:
        modules: Their names, in order.
        environment: The variables that had been set when they were first imported; packages may read them.
    """

    modules: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def import_framework(framework: str) -> None:
    """Imports the modules that the catalogue lists for a framework, and reads the versions that each run's log names."""
    import_modules(framework_info(framework).preload)
    for package in deciding_packages(framework):
        installed_version(package)


def deciding_packages(framework: str) -> tuple[str, ...]:
    """Returns the packages that decide the numbers of every run of a framework."""
    return "samestep", "numpy", framework_info(framework).module


@functools.cache
def installed_version(package: str) -> str:
    """Finds the version of a package, once for each process; "" if it is used from its source."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def import_modules(names: Iterable[str]) -> None:
    """Imports modules without collecting garbage.

    The objects that an import makes are kept, and searching them for garbage would take a third of the time. Once frozen, they
    stay shared between a fork server and its workers.
    """
    gc.disable()
    for name in names:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def preload(imports: Imports) -> None:
    """Imports modules in a process that will fork. If an import fails, the worker that needs the module reports it.

    Raises:
        RuntimeError: An import has started a thread, and a fork would leave its locks held.
    """
    before = _threads()
    with _set(imports.environment):
        for name in imports.modules:
            with contextlib.suppress(Exception):
                import_modules([name])
    if _threads() - before:  # others may end meanwhile
        raise RuntimeError(f"importing {', '.join(imports.modules[:3])}, ... has started a thread")


def _threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@contextlib.contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment)
    yield
    os.environ.clear()
    os.environ.update(before)


def imported_since(modules: Collection[str], environment: Mapping[str, str], code: Iterable[str]) -> dict[str, object]:
    """Returns what this process has imported and set since a moment, as fields of `Imports`, without the user's own files.

    Args:
        modules: The names of the modules that were imported before.
        environment: The environment variables before.
        code: The user's files; modules next to them count as the user's.
    """
    folders = {str(Path(path).parent) + os.sep for path in code}

    def is_package(name: str) -> bool:
        file = getattr(sys.modules[name], "__file__", None) or ""
        is_theirs = file.startswith(tuple(folders)) and not any(each in file for each in _INSTALLED)
        spec = getattr(sys.modules[name], "__spec__", None)
        return bool(file) and not is_theirs and spec is not None and spec.name == name and not name.startswith(_OURS)

    changed = {name: value for name, value in os.environ.items() if environment.get(name) != value}
    return {"modules": [n for n in list(sys.modules) if n not in modules and is_package(n)], "environment": changed}


def own_modules() -> dict[str, str]:
    """Returns the files of modules that are not installed, such as those next to the user's file, with their digests."""
    standard = sysconfig.get_path("stdlib") + os.sep
    main = getattr(sys.modules["__main__"], "__file__", None)
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        is_installed = file.startswith(standard) or any(each in file for each in _INSTALLED)
        if file.endswith(".py") and file != main and not is_installed and name.partition(".")[0] != _OURS:
            with contextlib.suppress(Unreadable):  # removed since
                found[file] = read_sha256(Path(file))
    return found
