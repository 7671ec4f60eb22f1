"""What `samestep diff` prints: the verdict, the first difference, the tensors that matter, and what to do next."""

import math
import shlex
from collections.abc import Sequence

from samestep.common.errors import count, printable
from samestep.common.judging.recorded.verdict import EXACT, RecordedVerdict, TensorRow
from samestep.common.mistakes.mistake import of_norm
from samestep.experiments.printing.column_table import Column, table
from samestep.experiments.printing.formats import Case, Document
from samestep.experiments.printing.text import bullets, fill, paragraphs, screen_width
from samestep.experiments.recording.diffing import Diffed
from samestep.experiments.recording.reruns import Reruns

MOST_ROWS = 12
"""The most tensors in the table; those that differ come first, in the order of the model."""
_WIDENED = (
    "bfloat16 and float16 mean float64 in these runs: what one side rounds to fewer digits, as on a wire, is not seen"
)
_COLUMNS: Sequence[Column[TensorRow]] = (
    Column("tensor", lambda row: row.name),
    Column("B / A", lambda row: "" if math.isnan(row.ratio) else f"{row.ratio:.6g}"),
    Column("off", lambda row: f"{row.off:.1e}"),
    Column("x rounding", lambda row: f"{row.times:,.1f}" if row.times < 1000 else f"{row.times:.0e}"),
    Column("", lambda row: "differs" if row.differs else ""),
)


def diff_document(found: Diffed, asked: Sequence[str]) -> Document:
    """Makes the report of a diff.

    Args:
        found: The records and the verdict.
        asked: The arguments of the command.
    """
    verdict = found.verdict
    step = next_step(verdict, asked)
    record = {
        "verdict": verdict,
        "headline": verdict.headline,
        "exit_code": verdict.exit_code,
        "next": step,
        "a": _about(found.a),
        "b": _about(found.b),
        "notes": [*verdict.notes, *found.notes],
    }
    rows = [
        {
            "tensor": row.name,
            "ratio": None if math.isnan(row.ratio) else row.ratio,
            "off": row.off,
            "times_rounding": row.times,
            "differs": row.differs,
        }
        for row in verdict.rows
    ]
    outcome = {0: "passed", 3: "skipped", 4: "failure"}[verdict.exit_code]
    case = Case("same step", outcome, "" if outcome == "passed" else verdict.headline)  # type: ignore[arg-type]
    return Document("samestep diff", lambda: _text(found, step), record, rows or [{"tensor": ""}], [case])


def _about(side: Reruns) -> dict[str, object]:
    header = side.run.header
    return {
        "directory": str(side.directory),
        "command": list(header.command),
        "processes": header.world,
        "framework": header.framework,
        "versions": header.versions,
        "is_float64": header.is_float64,
    }


def _text(found: Diffed, step: str) -> str:
    verdict = found.verdict
    sides = [fill(f"{who}: {_spell(side)}", indent="   ") for who, side in (("A", found.a), ("B", found.b))]
    shown = [verdict.rows[place] for place in differing_first([row.differs for row in verdict.rows], MOST_ROWS)]
    grid = table(_COLUMNS, shown, screen_width()) if shown and _wants_table(verdict) else ""
    left = len(verdict.rows) - MOST_ROWS
    more = [f"{count(left, 'tensor')} more in --format json"] if grid and left > 0 else []
    facts, following = bullets([*facts_of_diff(found), *more]), fill(f"Next: {step}", indent="  ") if step else ""
    return paragraphs(fill(verdict.headline, indent="  "), "\n".join(sides), grid, facts, following)


def facts_of_diff(found: Diffed) -> list[str]:
    """Returns facts besides the verdict: how far apart the runs are, where the cause was seen before, and other differences."""
    verdict = found.verdict
    return [
        *([verdict.first.words] if verdict.first and verdict.first.words not in verdict.headline else []),
        *(f"seen before: {cause.thread}" for cause in verdict.causes if cause.thread),
        *_measured(verdict),
        *([_WIDENED] if verdict.exit_code == 0 and found.a.run.header.is_cast else []),
        *verdict.notes,
        *found.notes,
    ]


def _wants_table(verdict: RecordedVerdict) -> bool:
    return verdict.first is not None and (verdict.first.phase not in EXACT or verdict.first.phase == "initial weights")


def _spell(side: Reruns) -> str:
    header = side.run.header
    return printable(f"{side.run.name} ({shlex.join(header.command)}; {count(header.world, 'rank')})")


def differing_first(differ: Sequence[bool], most: int) -> list[int]:
    """Returns the places of at most `most` tensors, in order: those that differ, then others if there is room.

    Args:
        differ: Whether each tensor differs.
        most: The most places to return.
    """
    return sorted(sorted(range(len(differ)), key=lambda place: not differ[place])[:most])


def _measured(verdict: RecordedVerdict) -> list[str]:
    """Returns what was compared, and the smallest difference that would have been found."""
    said = []
    if verdict.exit_code != 4 and verdict.worst:
        bound = "" if verdict.first else "; from 10 times on it is not rounding"
        said.append(f"the largest difference is {verdict.worst:.1f} times what rounding makes{bound}")
    if verdict.exit_code != 4 and verdict.resolution == 0:
        said.append("nothing that was recorded differs: every loss, gradient and update of B is that of A")
    elif verdict.exit_code != 4 and verdict.resolution is not None:
        least = of_norm(verdict.resolution, digits=1)
        said.append(f"a gradient that is wrong by {least}, or more, would have been seen at the first step")
    return said


def next_step(verdict: RecordedVerdict, asked: Sequence[str]) -> str:
    """Returns what to do next, as a sentence; "" if there is nothing to do.

    Args:
        verdict: The verdict.
        asked: The arguments of the command.
    """
    again = shlex.join(["samestep", "diff", *asked])
    step = 0 if verdict.first is None else verdict.first.step
    return {
        "": "",
        "model": "give both scripts the same model: only then can they start from the same weights and be compared",
        "weights": f"start B as A does: set the same seed in both scripts, or {again} --weights-from A",
        "float64": f"float64 decides, which rounds 500 million times less: {again} --float64",
        "steps": f"measure the effect of rounding on step {step}: {again} --steps {step + 1}",
        "command": "record A again where its command can be repeated, so that diff can measure the effect of rounding",
        "seed": "set A's seeds, so that it repeats itself: nothing can be compared with a run that is different each time",
    }[verdict.need]
