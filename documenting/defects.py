"""Shows the defects that samestep found in the frameworks: `python -m documenting.defects [NAME]`.

Each defect is one script in `torch_impl/defects/` or `tf_impl/defects/` that runs alone. It prints what it sees and ends
with an assertion of what should hold, and the defect is present if that assertion fails. `docs/found.md` shows every script.
"""

import ast
import dataclasses
import importlib.metadata
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from samestep.common.catalog import catalogue, framework_info, mirror_folder, require, require_row
from samestep.common.errors import WorkerFailed, unknown
from samestep.common.files.reading import read_text
from samestep.common.request import FRAMEWORKS
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser

TIMEOUT_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Defect:
    """A defect, as its script describes it.

    Attributes:
        script: The file of the script.
        summary: What is wrong, in one line.
        advice: What to do about it.
        packages: The framework, and the other packages outside the standard library that the script imports.
    """

    script: Path
    summary: str
    advice: str
    packages: tuple[str, ...]


def defects() -> dict[str, Defect]:
    """Returns all defects by name, which is the name of the script."""
    scripts = [(script, name) for name in FRAMEWORKS for script in (mirror_folder(name) / "defects").glob("*.py")]
    found = [_read(script, framework_info(name).module) for script, name in scripts]
    return {defect.script.stem: defect for defect in sorted(found, key=lambda defect: defect.script.stem)}


def _read(script: Path, framework: str) -> Defect:
    tree = ast.parse(read_text(script))
    summary, _, advice = (ast.get_docstring(tree) or "").partition("\n\n")
    packages = {framework, *(name.partition(".")[0] for name in _imported(tree))} - sys.stdlib_module_names
    return Defect(script, summary, " ".join(advice.split()), tuple(sorted(packages)))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def main(arguments: Sequence[str]) -> int:
    """Lists the defects, or looks for one of them in the installed versions.

    Raises:
        SamestepError: There is no such defect, its framework is not installed, or its script failed.
    """
    parser = Parser(prog="python -m documenting.defects", description=__doc__)
    parser.add_argument("name", nargs="?", help="the defect to look for; without it, all are listed")
    name, known = parser.parse_args(arguments).name, defects()
    if name is None:
        width = max(map(len, known))
        print("\n".join(f"{each:<{width}}  {defect.summary}" for each, defect in known.items()))
    elif name in known:
        look_for(known[name])
    else:
        raise unknown("defect", name, known)
    return 0


def look_for(defect: Defect) -> bool:
    """Runs the script of a defect and prints what it sees.

    Returns:
        Whether the installed versions have the defect.

    Raises:
        Unavailable: A package is not installed; the message has the install line.
        WorkerFailed: The script failed in another way than by its assertion.
    """
    _require(defect.packages)
    print(f"{defect.summary}\n", flush=True)  # before what the script prints
    failure = _run(defect.script)
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in defect.packages)
    print(
        f"{failure}\n\nPresent in {versions}. {defect.advice}" if failure else f"\nNot present any more in {versions}."
    )
    return bool(failure)


def _require(packages: Sequence[str]) -> None:
    for framework, row in catalogue():
        if framework_info(framework).module in packages:
            require(framework)
        if row.package in packages:
            require_row(framework, row.name)


def _run(script: Path) -> str:
    """Runs a script; returns what its failed assertion says, or "" if it held."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, str(script)]
        try:
            done = subprocess.run(
                command, cwd=scratch, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise WorkerFailed(
                f"{script.name} did not end within {TIMEOUT_SECONDS} s; run it alone: {script}"
            ) from None
    stderr = re.sub(r"^\[rank\d+\]: ", "", done.stderr, flags=re.MULTILINE)  # torch prefixes the rank of a traceback
    place = rf'File "{re.escape(str(script))}", line \d+, in <module>\n'
    failed = re.search(place + r"(?:    .*\n)+AssertionError: (.*)", stderr)
    if done.returncode and not failed:
        last = (stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        raise WorkerFailed(f"{script.name} ended with exit code {done.returncode}: {last}; run it alone: {script}")
    return failed[1] if failed else ""


if __name__ == "__main__":
    run_command(main)
