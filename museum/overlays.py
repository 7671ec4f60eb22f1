"""Installs the packages of pieces, each into a folder of its own: nothing of the environment changes."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable

from museum.piece import STORE

_ONE_BY_ONE = threading.Lock()  # pieces that are shown at the same time may share a package


class PieceFailed(Exception):
    """A package cannot be installed, or a script or a diff failed."""


def install(packages: Iterable[str]) -> None:
    """Installs what is not there yet, without what it depends on: pieces name that themselves.

    Args:
        packages: The packages, as pip spells them, with their versions.

    Raises:
        PieceFailed: pip failed.
    """
    for package in dict.fromkeys(packages):
        with _ONE_BY_ONE:
            _install(package)


def _install(package: str) -> None:
    folder = STORE / "overlays" / package
    if folder.exists():
        return
    half = folder.with_name(f"{package}.half")
    shutil.rmtree(half, ignore_errors=True)
    print(f"museum: {package} is installed ...", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--target", str(half), package], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PieceFailed(f"{package} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    half.rename(folder)
