"""Shows a piece: installs its packages, records both runs, and asks `samestep diff`. What is there already is not done again."""

import ast
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from museum.overlays import PieceFailed, install
from museum.piece import ROOT, SCRIPTS, STORE, Piece, Side
from samestep.common.judging.recorded.verdict import FirstDifference, place
from samestep.common.steps.joining import read_run

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"}
ENVIRONMENT |= {"USE_TF": "0", "USE_TORCH": "1", "TOKENIZERS_PARALLELISM": "false"}

JUDGES = ("common/judging/recorded", "common/mistakes", "common/steps")
"""The code that decides what a diff says."""

Losses = tuple[float | None, float | None]
"""Of the first step and of the last one."""


@dataclasses.dataclass(frozen=True)
class Shown:
    """What became of a piece.

    Attributes:
        kind: The verdict of the diff: "same", "amplified", "named", "unnamed" or "unknown".
        where: The first difference: step, phase, layer, ranks.
        names: The names of the mistakes that explain it.
        said: The verdict in one line.
        losses: The first and the last loss of the right run and of the wrong one.
    """

    kind: str
    where: str
    names: tuple[str, ...]
    said: str
    losses: tuple[Losses, ...]

    def is_located(self, piece: Piece) -> bool:
        """Returns whether the first difference is where the mistake is made.

        Args:
            piece: What was shown.
        """
        return self.where == piece.where

    def is_named(self, piece: Piece) -> bool:
        """Returns whether the mistake got its name.

        Args:
            piece: What was shown.
        """
        return piece.mistake in self.names

    def is_named_wrongly(self, piece: Piece) -> bool:
        """Returns whether it got other names only.

        Args:
            piece: What was shown.
        """
        return bool(self.names) and not self.is_named(piece)


def show(piece: Piece) -> Shown:
    """Shows a piece.

    Args:
        piece: Which.

    Raises:
        PieceFailed: A package, a script or the diff failed.
    """
    install(piece.packages)
    right, wrong = (_recorded(piece, name) for name in ("right", "wrong"))
    found = json.loads(_diffed(piece, right, wrong))
    verdict = found["verdict"]
    names = tuple(cause["name"] for cause in verdict["causes"])
    losses = tuple(_losses(path) for path in (right, wrong))
    where = place(FirstDifference(**verdict["first"])) if verdict["first"] else ""
    return Shown(verdict["kind"], where, names, found["headline"], losses)


def _recorded(piece: Piece, name: str) -> Path:
    """Returns the record of a side, made anew if the piece or its script is another one."""
    side: Side = getattr(piece, name)
    folder = STORE / "records" / piece.name / name
    command = piece.command(side)
    script = ast.unparse(ast.parse((SCRIPTS / f"{piece.script}.py").read_text()))  # its layout does not matter
    key = hashlib.sha256("\0".join((*command, script)).encode()).hexdigest()
    stamp = folder.with_name(f"{name}.key")
    if not stamp.exists() or stamp.read_text() != key:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"museum: {piece.name}, {name} ...", flush=True)
        _samestep(["record", "--out", str(folder), "--", *command], piece.name, (0,))
        stamp.write_text(key)
    return folder


def _diffed(piece: Piece, right: Path, wrong: Path) -> str:
    """Returns what the diff says, asked anew if a record or the code that judges is another one."""
    code = [each.read_text() for folder in JUDGES for each in sorted((ROOT / folder).rglob("*.py"))]
    keys = [each.with_name(f"{each.name}.key").read_text() for each in (right, wrong)]
    stamp = right.with_name(f"{hashlib.sha256(''.join((*keys, *code)).encode()).hexdigest()}.json")
    if not stamp.exists():
        said = _samestep(["diff", str(right), str(wrong), "--steps", "8", "--format", "json"], piece.name, (0, 3, 4))
        for other in right.parent.glob("*.json"):
            other.unlink()
        stamp.write_text(said)
    return stamp.read_text()


def _samestep(arguments: list[str], name: str, allowed: tuple[int, ...]) -> str:
    environment = os.environ | ENVIRONMENT
    command = [sys.executable, "-m", "samestep", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        errors = [line for line in done.stderr.splitlines() if re.match(r"\w*(Error|Exception)\b|samestep: ", line)]
        raise PieceFailed(f"{' '.join(command)} ended with {done.returncode}: {' | '.join(errors[:3])}")
    return done.stdout


def _losses(record: Path) -> Losses:
    losses = [step.loss for step in read_run(record).steps if step.number >= 0]
    return losses[0], losses[-1]
