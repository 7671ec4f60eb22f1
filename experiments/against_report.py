"""What is printed of a comparison that was held against an earlier one: a table, and what is not as it was."""

from collections.abc import Mapping

from samestep.common.evidence.repetition import CHANGED, EQUAL
from samestep.experiments.against import Against, Held
from samestep.experiments.speeds import spell_ratio
from samestep.experiments.text import Column, bullets, cells, fill, github, screen_width

COLUMNS = (
    Column("strategy", lambda row: row.cell),
    Column("losses", lambda row: _losses(row)),
    Column("bytes", lambda row: "" if row.losses is None else "CHANGED" if row.bytes else "equal"),
    Column("speed", lambda row: _speed(row)),
)


def write_report(against: Against) -> str:
    """Writes what people read.

    Args:
        against: What was found.
    """
    width = screen_width()
    versions = dict.fromkeys(row.differs for row in against.rows if row.differs)
    title = f"Against {against.directory} (today first)"
    title += f": {'; '.join(versions)}." if versions else ": the same versions."
    table = github(*cells(COLUMNS, against.rows), width) if against.rows else ""
    changed = [f"{row.cell} changed: {row.what_changed}." for row in against.rows if row.is_changed]
    return "\n\n".join(filter(None, [fill(title, width), table, bullets([*changed, *_notes(against)], width)]))


def _losses(row: Held) -> str:
    """How the losses compare, and where they first differ."""
    found = row.losses
    if found is None:
        return "not compared"
    if found.verdict == EQUAL:
        return f"{EQUAL}, {found.steps} steps"
    return f"CHANGED at step {found.step}" if found.verdict == CHANGED else f"{found.verdict}, from step {found.step}"


def _speed(row: Held) -> str:
    """The ratio of the speeds with its verdict, or what forbids one."""
    if row.confounds:
        more = f" +{len(row.confounds) - 1}" if row.confounds[1:] else ""
        return f"({row.confounds[0].name}{more})"
    if row.speed is None:
        return ""
    return f"{spell_ratio(row.speed.ratio)} {row.speed.verdict}".strip()


def _notes(against: Against) -> list[str]:
    """Why something was not compared, and what only one side has."""
    lines = _grouped("not compared", {row.cell: row.reason for row in against.rows if row.reason})
    lines += _grouped("no speeds", {r.cell: ", ".join(map(str, r.confounds)) for r in against.rows if r.confounds})
    lines += _grouped("speeds in spite of", {r.cell: ", ".join(map(str, r.allowed)) for r in against.rows if r.allowed})
    for where, names in (("today", against.only_now), (str(against.directory), against.only_then)):
        lines += [f"only {'in ' if where != 'today' else ''}{where}: {', '.join(names)}"] if names else []
    return lines


def _grouped(what: str, reasons: Mapping[str, str]) -> list[str]:
    """A line for each reason, with the rows that share it."""
    sharing: dict[str, list[str]] = {}
    for cell, reason in reasons.items():
        sharing.setdefault(reason, []).append(cell)
    return [f"{what}: {', '.join(names)}: {reason}" for reason, names in sharing.items()]
