"""What the tables of results say of one run, and the columns that this stands in."""

import dataclasses
from collections.abc import Callable, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.flags import flags
from samestep.common.request import Techniques
from samestep.common.runtime.records import RunResult
from samestep.experiments.text import Column, common_unit, in_unit, short, spell

Row = RunResult | tuple[str, str]
"""A run; or the cell and the status of one that left no result."""


def cell(result: RunResult) -> str:
    """`framework:strategy+option=value`, with a mesh that is not the usual one; what is emulated is marked."""
    info = strategy_info(result.framework, result.strategy)
    config = result.config
    chosen = [(info.options, config.options), (Techniques, dataclasses.asdict(config.techniques))]
    given = [f"+{n}={v}" for owner, values in chosen for n, v in values.items() if v != flags(owner)[n].default]
    given += [f"+mesh={config.mesh}"] if config.mesh != f"{(*info.axes, 'data')[0]}={config.devices}" else []
    emulated = " (emulated)" if result.emulation else ""
    return f"{result.framework}:{result.strategy}{''.join(given)}{emulated}"


def devices(result: RunResult) -> str:
    """How many, and on how many cores if they are of a CPU and have to share: their speed then says nothing."""
    count, cores = result.config.devices or 1, result.cores
    on_cpu = all("cpu" in row.device.lower() for row in result.processes)
    shared = on_cpu and not result.compiled and cores < count * result.config.threads
    return f"{count} on {cores} core{'s' if cores > 1 else ''}" if shared else str(count)


def same_step(result: RunResult) -> str:
    """Whether it took the same step, in a word; and how many steps were judged, if not all."""
    if result.parity.passed is None:
        return "reference" if result.framework == "numpy" else "compiled" if result.compiled else "not judged"
    judged, taken = result.parity.steps, len(result.losses)
    partly = f", {judged} of {taken}" if judged < taken else ""
    return f"yes{partly}" if result.parity.passed else "NO"


def rate(result: RunResult) -> str:
    """Examples per second: the median of the windows, and their spread."""
    return f"{_median(result)} {_spread(result)}".strip()


def _median(result: RunResult) -> str:
    return "" if result.examples_per_second is None else short(result.examples_per_second.median)


def _spread(result: RunResult) -> str:
    rate = result.examples_per_second
    if rate is None or rate.slowest_window is None or rate.fastest_window is None:
        return ""
    return "[1 window]" if rate.windows == 1 else f"[{short(rate.slowest_window)}..{short(rate.fastest_window)}]"


def _state(result: RunResult) -> float:
    return max(row.state_bytes for row in result.processes)


def _predicted_state(result: RunResult) -> float:
    return max(row.state_bytes for row in result.predicted.footprints)


def _sent(result: RunResult) -> float:
    return sum(row.sent_bytes_per_step for row in result.processes)


def _predicted_sent(result: RunResult) -> float:
    return result.predicted.sent_bytes_per_step


def often_the_same(results: Sequence[RunResult]) -> tuple[Column[RunResult], ...]:
    """What the caption says if nearly all rows have it in common."""
    metric = f"{results[0].metric_name.replace('_', ' ')}, {results[0].metric_direction} is better" if results else ""
    return (
        Column("devices", devices),
        Column("dtype", lambda result: result.dtype),
        Column("metric", lambda result: spell(result.metric_value, ".4g"), metric, gives_way=4),
    )


def columns(
    varying: Sequence[Column[RunResult]], results: Sequence[RunResult], startup: str
) -> tuple[Column[Row], ...]:
    """The columns of a table, bytes in one unit for all rows.

    Args:
        varying: Those of `often_the_same` that are columns here.
        results: The rows.
        startup: What is part of the start-up.
    """
    return (
        Column("strategy", lambda row: row[0] if isinstance(row, tuple) else cell(row)),
        *(dataclasses.replace(column, value=_of_a_run(column.value)) for column in varying),
        Column(
            "same step",
            lambda row: row[1] if isinstance(row, tuple) else same_step(row),
            "whether the loss is the reference's at every step that was judged",
        ),
        Column("examples/s", _of_a_step(_median), "the median of the run's timed windows"),
        Column(
            "[spread]",
            _of_a_step(_spread),
            "[the slowest..the fastest]; another run may lie outside",
            gives_way=2,
            is_detail=True,
        ),
        *_bytes(
            "state",
            (_state, _predicted_state),
            "parameters, gradients and optimizer state, on the device that holds most",
            results,
        ),
        *_bytes("sent", (_sent, _predicted_sent), "what all processes put on the wire in a step", results, gives_way=1),
        Column(
            "start-up s",
            _of_a_step(lambda result: f"{result.startup_seconds:.2f}"),
            f"from the start of the run to that of its first step, {startup}",
            gives_way=5,
        ),
    )


def _bytes(
    name: str,
    measures: tuple[Callable[[RunResult], float], Callable[[RunResult], float]],
    meaning: str,
    results: Sequence[RunResult],
    gives_way: int = 0,
) -> tuple[Column[Row], Column[Row]]:
    """What was measured in bytes, and behind it what was predicted."""
    unit = common_unit(measure(result) for result in results if not result.compiled for measure in measures)
    measured, predicted = measures

    def write(result: RunResult) -> str:
        least = "at least " if result.uncounted and name == "sent" else ""
        return least + in_unit(measured(result), unit)

    return (
        Column(f"{name} {unit}", _of_a_step(write), meaning, gives_way),
        Column("(predicted)", _of_a_step(lambda r: f"({in_unit(predicted(r), unit)})"), gives_way=3, is_detail=True),
    )


def _of_a_run(value: Callable[[RunResult], str]) -> Callable[[Row], str]:
    return lambda row: "" if isinstance(row, tuple) else value(row)


def _of_a_step(value: Callable[[RunResult], str]) -> Callable[[Row], str]:
    """Nothing for a run that only compiled a step."""
    return lambda row: "" if isinstance(row, tuple) or row.compiled else value(row)
