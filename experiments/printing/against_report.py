"""Prints the comparison with an earlier one: a table, and what has changed."""

from collections.abc import Mapping

from samestep.common.errors import count
from samestep.common.judging.repetition import CHANGED, EQUAL
from samestep.experiments.comparing.against import Against, RowDifference
from samestep.experiments.comparing.quantities import SPEED
from samestep.experiments.comparing.speeds import spell_confounds, spell_ratio
from samestep.experiments.printing.column_table import Column, table
from samestep.experiments.printing.text import bullets, fill, paragraphs, screen_width, sharing, short

COLUMNS = (
    Column("strategy", lambda row: row.cell),
    Column("losses", lambda row: _losses(row)),
    Column("bytes", lambda row: "" if row.losses is None else "CHANGED" if row.bytes else "equal"),
    Column(f"{SPEED.name} (then)", lambda row: _rates(row)),
    Column("ratio", lambda row: _speed(row)),
)


def write_report(against: Against) -> str:
    """Writes the text for people.

    Args:
        against: The comparison with the earlier one.
    """
    versions = dict.fromkeys(row.differs for row in against.rows if row.differs)
    title = f"Against {against.directory} (today first)"
    title += f": {'; '.join(versions)}." if versions else ": the same versions."
    grid = table(COLUMNS, against.rows, screen_width()) if against.rows else ""
    changed = [f"{row.cell} changed: {row.what_changed}." for row in against.rows if row.is_changed]
    return paragraphs(fill(title), grid, bullets([*changed, *_notes(against)]))


def _losses(row: RowDifference) -> str:
    """Returns how the losses compare, and where they first differ."""
    found = row.losses
    if found is None:
        return "not compared"
    if row.differing and found.verdict != CHANGED:
        return "NOT BIT-EQUAL " + ("in the final state" if found.step is None else f"from step {found.step}")
    if found.verdict == EQUAL:
        return f"{EQUAL}, {count(found.steps, 'step')}"
    return f"CHANGED at step {found.step}" if found.verdict == CHANGED else f"{found.verdict}, from step {found.step}"


def _rates(row: RowDifference) -> str:
    now, then = ("" if rate is None else short(rate) for rate in row.rates)
    return f"{now} ({then})" if now or then else ""


def _speed(row: RowDifference) -> str:
    """Returns the ratio of the speeds with its verdict, or the confounds that prevent one."""
    if row.confounds and not row.reason:
        return spell_confounds([each.name for each in row.confounds])
    if row.speed is None:
        return ""
    return f"{spell_ratio(row.speed.ratio)} {row.speed.verdict}".strip()


def _notes(against: Against) -> list[str]:
    """Returns why something was not compared, and which rows only one side has."""
    compared = [row for row in against.rows if not row.reason]
    lines = _grouped("not compared", {row.cell: row.reason for row in against.rows if row.reason})
    lines += _grouped("bits not judged", {row.cell: row.bits for row in against.rows if row.bits})
    stops = {row.cell: ", ".join(map(str, row.confounds)) for row in compared if row.confounds}
    lines += _grouped("speeds not compared", stops)
    despite = "speeds compared because of --allow, despite"
    lines += _grouped(despite, {row.cell: ", ".join(map(str, row.allowed)) for row in compared if row.allowed})
    only = {"only today": against.only_now, f"only in {against.directory}": against.only_then}
    return lines + [f"{where}: {', '.join(names)}" for where, names in only.items() if names]


def _grouped(what: str, reasons: Mapping[str, str]) -> list[str]:
    """Returns a line for each reason, with the rows that share it."""
    found = sharing((reason, cell) for cell, reason in reasons.items())
    return [f"{what}: {', '.join(names)}: {reason}" for reason, names in found.items()]
