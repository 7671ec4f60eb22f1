"""Results as tables: one row a run, tabulate's GitHub format, every measurement beside its prediction."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.flags import flags
from samestep.common.request import Techniques
from samestep.common.runtime.records import RunResult
from samestep.experiments.compiled import compiled
from samestep.experiments.text import github, size, spell


def cell(result: RunResult) -> str:
    """`framework:strategy+option=value`, with what is emulated said beside it."""
    info = strategy_info(result.framework, result.strategy)
    config = result.config
    chosen = [(info.options, config.options), (Techniques, dataclasses.asdict(config.techniques))]
    given = [f"+{n}={v}" for owner, values in chosen for n, v in values.items() if v != flags(owner)[n].default]
    emulated = f" ({result.emulation})" if result.emulation else ""
    return f"{result.framework}:{result.strategy}{''.join(given)}{emulated}"


def devices(result: RunResult) -> str:
    """How many, and on how many cores if they are of a CPU and have to share: their speed then says nothing."""
    count, cores = result.config.devices or 1, result.cores
    on_cpu = all("cpu" in row.device.lower() for row in result.processes)
    shared = on_cpu and not result.compiled and cores < count * result.config.threads
    return f"{count} on {cores} core{'s' if cores > 1 else ''}" if shared else str(count)


def same_step(result: RunResult) -> str:
    """Whether it took the same step, in a word."""
    if result.parity.passed is None:
        return "reference" if result.framework == "numpy" else "compiled" if result.compiled else "not judged"
    return "yes" if result.parity.passed else "NO"


def _rate(result: RunResult) -> str:
    rate = result.examples_per_second
    return "" if rate is None else f"{rate.median:,.0f} [{rate.low:,.0f} .. {rate.high:,.0f}]"


def _state_bytes(result: RunResult) -> str:
    measured, predicted = (
        max(row.state_bytes for row in rows) for rows in (result.processes, result.predicted.footprints)
    )
    return f"{size(measured)} ({size(predicted)})"


def _sent(result: RunResult) -> str:
    measured = sum(row.sent_bytes_per_step for row in result.processes)
    least = "at least " if result.uncounted and not result.compiled else ""
    return f"{least}{size(measured)} ({size(result.predicted.sent_bytes_per_step)})"


def measures(result: RunResult) -> str:
    """The strategy's own quantities, a line each, over all its processes; "" if it has none."""
    lines = []
    for measure in strategy_info(result.framework, result.strategy).measures:
        values = [row.measures[measure.name] for row in result.processes if measure.name in row.measures]
        shown = dict.fromkeys(f"{value:.4g}" for value in ([min(values), max(values)] if values else []))
        lines += [f"{measure.name}: {' to '.join(shown)} {measure.unit}: {measure.meaning}"] if values else []
    return "\n".join(lines)


def columns(results: Sequence[RunResult]) -> dict[str, Callable[[RunResult], str]]:
    """The columns of a comparison; the metric's name is that of its workload."""
    metric = results[0].metric_name.replace("_", " ") if results else "metric"
    return {
        "strategy": cell,
        "devices": devices,
        "dtype": lambda r: r.dtype,
        "same step": same_step,
        "loss deviation": lambda r: spell(r.parity.max_relative_loss, ".0e"),
        metric: lambda r: spell(r.metric_value, ".4f"),
        "examples/s [95 %]": _rate,
        "state/device (predicted)": _state_bytes,
        "sent/step (predicted)": _sent,
        "start-up s": lambda r: f"{r.startup_seconds:.1f}",
    }


def _applies(header: str, result: RunResult) -> bool:
    """Whether a column applies: to a run that compiled and took no step, only those before any measurement do."""
    return not result.compiled or header in ("strategy", "devices", "dtype", "same step")


def comparison(results: Sequence[RunResult], failures: Sequence[tuple[str, str]] = ()) -> str:
    """The table of a comparison.

    Args:
        results: One row each.
        failures: Cell and status of what left no result; they get a row each.
    """
    shown = columns(results)
    rows = [{h: value(result) for h, value in shown.items() if _applies(h, result)} for result in results]
    rows += [{"strategy": name, "same step": status} for name, status in failures]
    return github([*shown], [[row.get(header, "") for header in shown] for row in rows])


def caption(results: Sequence[RunResult]) -> str:
    """What all rows of a comparison have in common, in one line."""
    first = next((r for r in results if r.framework != "numpy" and not r.compiled), results[0])
    rate, cores = f"{first.optimizer} at rate {first.config.learning_rate:g}", max(r.cores for r in results)
    return (
        f"`{first.workload}`: global batch {first.global_batch_size}, {first.steps} steps, {rate}, seed {first.seed}, "
        f"{cores} core{'s' if cores > 1 else ''} of {first.machine['cpu']}. "
        f"State is parameters, gradients and optimizer; sent is what all processes put on the wire in a step; "
        "start-up is the time to the first step, the frameworks imported already."
    )


def verdict(results: Sequence[RunResult]) -> str:
    """One sentence: how many took the same steps, and which was the fastest (emulations are not ranked)."""
    judged = [r for r in results if r.parity.passed is not None]
    same = [r for r in judged if r.parity.passed]
    if not judged:
        return "No run was judged."
    worst = max(r.parity.max_relative_loss or 0.0 for r in judged)
    steps = statistics.mode(r.parity.steps for r in judged)
    noun = "strategy" if len(judged) == 1 else "strategies"
    sentence = f"{len(same)} of {len(judged)} {noun} took the same {steps} steps, largest deviation {worst:.0e}"
    ranked = [r for r in judged if r.examples_per_second and not r.emulation]
    if len(ranked) > 1:
        fastest = max(ranked, key=lambda r: r.examples_per_second.median if r.examples_per_second else 0.0)
        sentence += f"; fastest here: {cell(fastest)}"
    return sentence + "."


def report(result: RunResult) -> str:
    """Everything that one run prints: its table, its verdict, the strategy's own quantities."""
    judged = result.parity.passed is not None
    said = verdict([result]) if judged else f"Parity was not judged: {result.parity.reason}."
    return "\n".join(filter(None, [f"{compiled([result]) or comparison([result])}\n\n{said}", measures(result)]))
