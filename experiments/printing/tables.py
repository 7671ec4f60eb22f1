"""Results as tables that fit the screen: a line for each run, with predictions next to the measurements."""

import math
import statistics
from collections.abc import Callable, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.errors import count
from samestep.common.features.used import spell_switched
from samestep.common.flags import split_spelling
from samestep.common.request import ORACLE
from samestep.common.runtime.records import RunResult
from samestep.common.workload.table import resize, title
from samestep.experiments.comparing.quantities import METRIC
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.column_table import Column, Row, filled, fit, joined, meanings, table
from samestep.experiments.printing.columns import (
    Line,
    cell,
    columns,
    columns_of_lines,
    explain_emulations,
    explain_misses,
    shared_columns,
)
from samestep.experiments.printing.text import bullets, fill, github, paragraphs, screen_width, sharing

EXCEPTIONS = 3
"""A common value with at most this many exceptions is in the caption and not in a column."""
IMPORT_INCLUDED = "including the import of the framework"


def comparison(
    measured: Sequence[MeasuredRow],
    failures: Sequence[tuple[str, str]] = (),
    width: int | None = None,
    wide: bool = False,
    leave_out: Sequence[str] = (),
) -> str:
    """Returns the table of a comparison, and the meanings of its columns.

    Args:
        measured: The rows with a result.
        failures: The cell and the status of each row without a result.
        width: The characters of a line; those of the screen, unless given.
        wide: Whether to show every column on one line a row, even if wider than the screen.
        leave_out: The headers of columns that are not shown.
    """
    width = width or screen_width()
    varying = [column for column in shared_columns(measured) if _in_common(column, measured) is None]
    rows: list[Line] = [*measured, *failures]
    reference = next((row.name for row in measured if row.speed.is_reference), "")
    # Processes that an engine starts import the framework themselves.
    startup = (
        IMPORT_INCLUDED if any(row.result.hosts for row in measured) else "with frameworks that were imported before"
    )
    found = columns_of_lines(columns(varying, measured, startup, reference))
    every = filled([each for each in found if each.header not in leave_out], rows)
    shown = fit(every, rows, None if wide else width)
    lines = _meanings(shown, measured)
    left_out = dict.fromkeys(column.header for column in every if column not in shown)
    if any(row.result.by_host for row in measured):
        from samestep.experiments.printing.host_table import explain_between  # here: most runs have one host

        lines.append(explain_between(measured))
    lines += [f"not shown in {width} columns: {', '.join(left_out)}; --wide shows all"] if left_out else []
    return f"{table(shown, rows, None if wide else width)}\n\n{bullets(lines, width)}"


def _meanings(shown: Sequence[Column[Row]], rows: Sequence[MeasuredRow]) -> list[str]:
    """Returns the meanings of the columns, what is emulated, and which predictions miss."""
    emulated = explain_emulations([row.result for row in rows])
    return meanings(joined(shown)) + emulated + explain_misses((row.name, row.result) for row in rows)


def said_once(measured: Sequence[MeasuredRow]) -> list[str]:
    """Returns the names of the quantities that the caption gives for all rows, with the exceptions."""
    return [column.header.rstrip() for column in shared_columns(measured) if _in_common(column, measured)]


def _in_common(column: Column[MeasuredRow], measured: Sequence[MeasuredRow]) -> str | None:
    """Returns the value that (nearly) all rows have in a column, and the exceptions; None if there are too many."""
    rows = [(row, text) for row in measured if (text := column.value(row))]
    # The oracle's value does not count, unless there is no other.
    ruling = [value for row, value in rows if not row.result.is_oracle] or [value for _, value in rows]
    usual = statistics.mode(ruling) if ruling else ""
    exceptions = sharing((value, row.name) for row, value in rows if value != usual)
    if sum(map(len, exceptions.values())) > min(EXCEPTIONS, len(rows) // 2):
        return None
    listed = "; ".join(f"{', '.join(those)}: {value}" for value, those in exceptions.items())
    return usual + (f" ({listed})" if listed else "")


def caption(measured: Sequence[MeasuredRow], width: int | None = None) -> str:
    """Returns the caption with what the rows of a comparison have in common; "" without rows.

    Args:
        measured: The rows.
        width: The characters of a line; those of the screen, unless given.
    """
    if not measured:
        return ""
    results = [row.result for row in measured]
    trained = [r for r in results if r.is_trained] or results
    first, cores = trained[0], max(r.cores for r in results)
    said = [[fact(r) for r in trained] for fact in _FACTS]
    same = [values[0] for values in said if len(set(values)) == 1 and values[0]]
    line = (
        f"`{title(_shared_workload(trained), first.config.data)}`: {', '.join(same)}, "
        f"{count(cores, 'core')} of {first.machine['cpu']}."
    )
    called = {METRIC.name: first.metric_name.replace("_", " ")}
    found = {called.get(c.header, c.header): _in_common(c, measured) for c in shared_columns(measured)}
    shared = [f"{header} {value}" for header, value in found.items() if value]
    whose = "Every row" if measured[1:] else measured[0].name
    line += f" {whose}: {', '.join(shared)}." if shared else ""
    line += _hosts(measured)
    return fill(line, width)


def _hosts(rows: Sequence[MeasuredRow]) -> str:
    """Returns the hosts on which an engine started each row; "" if none did."""
    spread = [(row.result.hosts, row.name) for row in rows if row.result.hosts]
    ran = sharing((" and ".join(host["host"] for host in hosts), name) for hosts, name in spread)
    said = [f"on {where}: {', '.join(rows)}" for where, rows in ran.items()]
    return f" Ran {'; '.join(said)}." if said else ""


_FACTS: Sequence[Callable[[RunResult], str]] = (
    lambda r: f"global batch {r.global_batch_size}",
    lambda r: count(r.steps, "step"),
    lambda r: f"{r.optimizer} at rate {r.config.learning_rate:g}",
    lambda r: f"seed {r.seed}",
    lambda r: spell_switched(r.config),
)
"""Facts that the caption states if all rows agree in them."""


def _shared_workload(results: Sequence[RunResult]) -> str:
    """Returns the workload of all rows, with the sizes that they share."""
    names, sizes = zip(*(split_spelling(result.workload) for result in results), strict=True)
    same = dict(set.intersection(*(set(each.items()) for each in sizes)))
    return resize(names[0], {name: size for name, size in sizes[0].items() if name in same})


def verdict(results: Sequence[RunResult]) -> str:
    """Returns one sentence: how many took the same steps, how far that was judged, and the largest deviation of each dtype."""
    judged = [r for r in results if r.parity.passed is not None]
    if not judged:
        return "No run was judged."
    same = sum(r.parity.passed is True for r in judged)
    noun = "strategies" if len({(r.framework, r.strategy) for r in judged}) == len(judged) else "rows"
    subject = f"{same} of {len(judged)} {noun} took"
    if len(judged) == 1:
        subject = cell(judged[0]) + (" took" if same else " did not take")
    worst: dict[str, float] = {}
    for r in judged:
        deviation = math.inf if r.parity.max_relative_loss is None else r.parity.max_relative_loss
        worst[_judged_as(r)] = max(worst.get(_judged_as(r), 0.0), deviation)
    more = "; --parity judges every step" if any(r.parity.steps < len(r.losses) for r in judged) else ""
    largest = ", ".join(f"{deviation:.0e} in {dtype}" for dtype, deviation in worst.items())
    why = judged[0].parity.reason if len(judged) == 1 and same else ""
    why = f" {why[0].upper()}{why[1:]}." if why else ""
    return f"{subject} {_steps(judged)}; largest relative loss deviation {largest}{more}.{why}"


def _judged_as(result: RunResult) -> str:
    """Returns what decided how far a run may deviate: its dtype, a separate bound, or amplified rounding."""
    if result.parity.is_amplified:
        return f"amplified {result.arithmetic}"
    numbers = result.arithmetic
    return numbers if result.parity.loss_bound is None else f"{numbers} (allowed {result.parity.loss_bound:.0e})"


def _steps(judged: Sequence[RunResult]) -> str:
    """Returns whose steps were taken, the oracle's or those of a user's model on one device, and how many were judged."""
    counts, taken = {r.parity.steps for r in judged}, max(len(r.losses) for r in judged)
    least, most = min(counts), max(counts)
    span = f"{least}" if least == most else f"{least} to {most}"
    number, how = (count(taken, "step"), "") if least == taken else ("steps", f", judged at {span} of {taken}")
    references = list(dict.fromkeys(r.parity.reference for r in judged))
    if references == [ORACLE]:
        return f"the oracle's {number}{how}"
    others = [f"{name} in float64" for name in references if name != ORACLE]
    return f"the {number} of {' and '.join((['the oracle'] if ORACLE in references else []) + others)}{how}"


def report(result: RunResult) -> str:
    """Returns everything that is printed for one run: its table, and its verdict."""
    judged = result.parity.passed is not None
    said = verdict([result]) if judged else f"Parity was not judged: {result.parity.reason}."
    tables = [compiled_steps([result]) if result.compiled else _alone(result)]
    if result.by_host:
        from samestep.experiments.printing.host_table import host_table  # here: most runs have one host

        tables.append(host_table(result, screen_width()))
    return paragraphs(*tables, fill(said))


def compiled_steps(results: Sequence[RunResult]) -> str:
    """Returns the table of the steps that were compiled and not run; "" if there are none."""
    if not any(result.compiled for result in results):
        return ""
    from samestep.experiments.printing.aot_report import compiled  # here: most runs train

    return compiled(results)


def _alone(result: RunResult) -> str:
    """Returns the table of one run, a row for each quantity, and the meanings of these."""
    alone = MeasuredRow.of(result)
    every = columns(shared_columns([alone]), [alone], IMPORT_INCLUDED)
    own = measures(result)
    rows = [[column.header, column.value(alone)] for column in joined(every)] + [[name, said] for name, said, _ in own]
    lines = _meanings(every, [alone]) + [f"{name}: {meaning}" for name, _, meaning in own]
    return f"{github([cell(result), ''], rows, screen_width())}\n\n{bullets(lines)}"


def measures(result: RunResult) -> list[tuple[str, str, str]]:
    """Returns the strategy's own quantities over all its processes: title, smallest to largest value with unit, and meaning."""
    found = []
    for measure in strategy_info(result.framework, result.strategy).measures:
        if values := [row.measures[measure.name] for row in result.processes if measure.name in row.measures]:
            shown = " to ".join(dict.fromkeys(f"{value:.4g}" for value in (min(values), max(values))))
            found.append((measure.name.replace("_", " "), f"{shown} {measure.unit}", measure.meaning))
    return found
