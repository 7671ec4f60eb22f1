"""How a comparison ends as a gate: the first problem of its rows that applies, in a sentence."""

import shlex
from typing import TYPE_CHECKING

from samestep.common.errors import ParityFailed, SamestepError, Unavailable, WorkerFailed, count, one_line
from samestep.experiments.comparing.row import FAILED, IMPOSSIBLE, MISSED, NOT_RUN, UNAVAILABLE, Row, say_status

if TYPE_CHECKING:
    from samestep.experiments.comparing.comparison import Comparison


def find_failure(found: "Comparison") -> SamestepError | None:
    """Finds the error that a comparison ends with: missed parity first, then failed rows, then missing or unjudged rows.

    Returns:
        The error, whose message is the sentence in the terminal and on the page; None if everything passed.
    """
    if missed := [(row.cell, row.attribution) for row in found.rows if row.status == MISSED]:
        from samestep.common.judging.conclusion import conclude_missed  # here: most comparisons pass

        return ParityFailed(f"{conclude_missed(missed)}.")
    if found.against and found.against.changed:
        return ParityFailed(found.against.changed)
    if failed := [row for row in found.rows if row.status == FAILED]:
        return WorkerFailed(_say_failed(failed))
    if lacking := [lack for lack in (*(_lack(found, row) for row in found.rows), found.missing) if lack]:
        return Unavailable(*lacking)
    if found.parity and not any(row.is_judged for row in found.rows):
        return Unavailable("parity was requested, but no row was judged.")
    if found.against and (lack := found.against.lack(found.required)):
        return Unavailable(lack)
    return None


def headline(found: "Comparison") -> str:
    """Returns how a comparison failed: its error, and the exit code if no row is at fault; "" if it passed."""
    if not (reason := found.exit_reason):
        return ""
    blames_rows = not found.interrupt and isinstance(found.failure, ParityFailed | WorkerFailed)
    said = reason if blames_rows else f"As a gate this ends with exit code {found.exit_code}: {reason}"
    return said if said.endswith(".") else f"{said}."


def say_missing(found: "Comparison") -> str:
    """Returns how many runs are missing, and how to continue; "" if none is, or if single runs were put together."""
    if found.directory is None:
        return ""
    open_rows = [row for row in found.rows if row.results or row.status == NOT_RUN if row.status != MISSED]
    wanted = sum(1 if row.configuration.is_oracle else found.repeats for row in open_rows)
    missing = wanted - sum(len(row.results) for row in open_rows)
    command = shlex.join(["samestep", "compare", "--resume", str(found.directory), *found.beside])
    verb = "is" if missing == 1 else "are"
    return f"{missing} of {count(wanted, 'run')} {verb} missing; continue with: {command}" if missing else ""


def _say_failed(rows: list[Row]) -> str:
    """Returns which rows failed, with the reason if all have the same one."""
    reasons = {row.reason for row in rows}
    why = f": {one_line(reasons.pop())}" if len(reasons) == 1 else "."
    return f"{', '.join(row.cell for row in rows)} failed{why}"


def _lack(found: "Comparison", row: Row) -> str:
    """Returns what a row that the user named or required lacks; "" if nothing."""
    if row.cell in found.required and not row.is_judged:
        return say_status([f"{row.cell}, which must be judged,"], row.status, row.attribution)
    if row.cell in found.named and row.status in (UNAVAILABLE, IMPOSSIBLE):
        return say_status([row.cell], row.status, row.attribution)
    return ""
