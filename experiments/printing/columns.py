"""What the tables of results say of one run, and the columns that this stands in."""

import dataclasses
from collections.abc import Callable, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.flags import flags
from samestep.common.request import RunConfig
from samestep.common.runtime.records import RunResult
from samestep.common.techniques import Techniques
from samestep.experiments.printing.misses import BYTES, mark
from samestep.experiments.printing.speed_columns import Row, Timed, of_a_step, speed_columns
from samestep.experiments.printing.text import Column, common_unit, count, explain_emulation, in_unit, spell

Name = Callable[[RunResult], str]
"""How a row is called."""


def cell(result: RunResult) -> str:
    """`framework:strategy+option=value`, with a mesh that is not the usual one; what is emulated is marked."""
    emulated = " (emulated)" if result.emulation else ""
    return _spell_cell(result.framework, result.strategy, result.config) + emulated


def config_cell(config: RunConfig) -> str:
    """The cell of a request, as that of its result."""
    return _spell_cell(config.framework, config.strategy, config)


def _spell_cell(framework: str, strategy: str, config: RunConfig) -> str:
    info = strategy_info(framework, strategy)
    chosen = [(info.options, config.options), (Techniques, dataclasses.asdict(config.techniques))]
    given = [f"+{n}={v}" for owner, values in chosen for n, v in values.items() if v != flags(owner)[n].default]
    given += [f"+mesh={config.mesh}"] if config.mesh != f"{(*info.axes, 'data')[0]}={config.devices}" else []
    return f"{framework}:{strategy}{''.join(given)}"


def explain_emulations(results: Sequence[RunResult]) -> list[str]:
    """What runs in the place of rows that are marked as emulated: a line for each strategy, or cell, if not all of its rows are.

    Args:
        results: Of the rows.
    """
    real = {(each.framework, each.strategy) for each in results if not each.emulation}
    said: dict[tuple[str, str], None] = {}
    for each in results:
        if each.emulation:
            row = (each.framework, each.strategy)
            said[config_cell(each.config) if row in real else ":".join(row), each.emulation] = None
    return [explain_emulation(*each) for each in said]


def named(results: Sequence[RunResult], names: Sequence[str]) -> Name:
    """How the rows of a table are called: by names that were given, else as their results are.

    Args:
        results: The rows.
        names: One for each, or none.
    """
    given = {id(result): name for result, name in zip(results, names, strict=False)}

    def name(result: RunResult) -> str:
        return given[id(result)] + (" (emulated)" if result.emulation else "") if given else cell(result)

    return name


def devices(result: RunResult) -> str:
    """How many, and on how many cores if they are of a CPU and have to share: their speed then says nothing."""
    number = str(result.config.devices or 1)
    return f"{number} on {count(result.cores, 'core')}" if share_cores(result) else number


def share_cores(result: RunResult) -> bool:
    """Whether its devices are of a CPU that has fewer cores than they have threads."""
    on_cpu = all("cpu" in row.device.lower() for row in result.processes)
    return on_cpu and not result.compiled and result.cores < (result.config.devices or 1) * result.config.threads


def same_step(result: RunResult) -> str:
    """Whether it took the same step, in a word; and how many steps were judged, if not all."""
    if result.parity.passed is None:
        return "reference" if result.framework == "numpy" else "compiled" if result.compiled else "not judged"
    judged, taken = result.parity.steps, len(result.losses)
    partly = f", {judged} of {taken}" if judged < taken else ""
    how = ", amplified" if result.parity.is_amplified else ""
    return f"yes{how}{partly}" if result.parity.passed else "NO"


def often_the_same(results: Sequence[RunResult]) -> tuple[Column[RunResult], ...]:
    """What the caption says if nearly all rows have it in common."""
    better = f", {results[0].metric_direction} is better" if results and results[0].metric_direction else ""
    metric = f"{results[0].metric_name.replace('_', ' ')}{better}" if results else ""
    return (
        Column("devices", devices),
        Column("dtype", lambda result: result.dtype),
        Column("metric", lambda result: spell(result.metric_value, ".4g"), metric, gives_way=6),
    )


def columns(
    varying: Sequence[Column[RunResult]], rows: Sequence[Timed], startup: str, name: Name = cell
) -> tuple[Column[Row], ...]:
    """The columns of a table, bytes in one unit for all rows.

    Args:
        varying: Those of `often_the_same` that are columns here.
        rows: The rows that have a result.
        startup: What is part of the start-up.
        name: How a row is called.
    """
    results = [row.result for row in rows]
    reference = next((name(row.result) for row in rows if row.speed.is_reference), "")
    return (
        Column("strategy", lambda row: row[0] if isinstance(row, tuple) else name(row.result)),
        *(dataclasses.replace(column, value=_of_a_run(column.value)) for column in varying),
        Column(
            "same step",
            lambda row: row[1] if isinstance(row, tuple) else same_step(row.result),
            "whether the loss is the reference's at every step that was judged",
        ),
        *speed_columns(rows, reference),
        *_bytes(
            "state",
            "parameters, gradients, optimizer state and compression's residuals, on the device that holds most",
            results,
            gives_way=2 if reference else 0,
        ),
        *_bytes("sent", "what all processes put on the wire in a step", results, gives_way=3),
        *_bytes(
            "activations",
            "kept at once between forward and backward, on the device that keeps most",
            results,
            gives_way=6,
        )
        * any(row.activations_bytes is not None for result in results for row in result.processes),
        Column(
            "start-up s",
            of_a_step(lambda row: f"{row.result.startup_seconds:.2f}"),
            f"from the start of the run to that of its first step, {startup}",
            gives_way=7,
        ),
    )


def _bytes(
    name: str,
    meaning: str,
    results: Sequence[RunResult],
    gives_way: int = 0,
) -> tuple[Column[Row], Column[Row]]:
    """What was measured in bytes, and behind it what was predicted, with a mark where that is off."""
    measured, predicted = BYTES[name]
    unit = common_unit(measure(result) or 0 for result in results if not result.compiled for measure in BYTES[name])

    def write(row: Timed) -> str:
        least = "at least " if row.result.uncounted and name == "sent" else ""
        return least + _spelled(measured(row.result), unit)

    return (
        Column(f"{name} {unit}", of_a_step(write), meaning, gives_way),
        Column(
            "(predicted)",
            of_a_step(lambda row: _in_brackets(_spelled(predicted(row.result), unit), mark(row.result, name))),
            gives_way=max(5, gives_way),
            is_detail=True,
        ),
    )


def _in_brackets(text: str, behind: str) -> str:
    return f"({text}){behind}" if text else ""


def _spelled(count: float | None, unit: str) -> str:
    return "" if count is None else in_unit(count, unit)


def _of_a_run(value: Callable[[RunResult], str]) -> Callable[[Row], str]:
    return lambda row: "" if isinstance(row, tuple) else value(row.result)
