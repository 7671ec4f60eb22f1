"""Runs the commands that answer a question. What they printed is kept in .museum/settled/."""

import ast
import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from museum.overlays import PieceFailed
from museum.piece import ROOT, STORE
from museum.settled.table import Answer


@dataclasses.dataclass(frozen=True)
class Printed:
    """What a command printed.

    Attributes:
        exit_code: That of the command.
        text: All of it.
        errors: What it wrote to stderr.
    """

    exit_code: int
    text: str
    errors: str

    @property
    def verdict(self) -> str:
        """The first lines, as they are."""
        return self.text.split("\n\n")[0].rstrip("\n")

    @property
    def shown(self) -> str:
        """What is shown: neither where the records are nor the table of tensors."""
        parts = [part.rstrip("\n") for part in self.text.split("\n\n")]
        return "\n\n".join(part for part in parts if part and not part.startswith(("A: ", "|")))

    def is_as_expected(self, answer: Answer) -> bool:
        """Returns whether the verdict is the one of the table.

        Args:
            answer: What the table says.
        """
        return self.exit_code == answer.exit_code and " ".join(self.verdict.split()).startswith(answer.said)


def run(answer: Answer, folder: Path) -> Printed:
    """Runs a command.

    Args:
        answer: Which.
        folder: Where it is started; its records are below.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # the page has one width
    environment |= {"PYTHONPATH": str(ROOT), "PATH": path}
    line = [sys.executable, "-m", "samestep", *answer.words]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Printed(done.returncode, done.stdout, done.stderr)


def shown_of(answer: Answer) -> str:
    """Returns what is shown of a command: as it is kept, if neither it nor its script has changed.

    Args:
        answer: Which.

    Raises:
        PieceFailed: It is not the one of the table.
    """
    folder = STORE / "settled"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{_key(answer)}.txt"
    if not kept.exists():
        printed = run(answer, folder)
        if not printed.is_as_expected(answer):
            said = printed.verdict or printed.errors[-400:]
            raise PieceFailed(f"{answer.command} ended with {printed.exit_code} and said: {said}")
        kept.write_text(printed.shown)
    return kept.read_text()


def _key(answer: Answer) -> str:
    script = ROOT / "museum" / "settled" / f"{answer.script}.py"
    code = ast.unparse(ast.parse(script.read_text()))  # its layout does not matter
    return hashlib.sha256("\0".join((answer.command, code)).encode()).hexdigest()[:16]
