"""Results as tables: one row a run, tabulate's GitHub format, every measurement beside its prediction."""

import statistics
from collections.abc import Callable, Sequence

from tabulate import tabulate

from common.runtime.records import RunResult
from common.strategy import strategy_info

Column = tuple[str, Callable[[RunResult], str]]


def cell(result: RunResult) -> str:
    """`framework:strategy`, with what is emulated said beside it."""
    emulated = _emulation(result)
    options = "".join(f"+{k}={v}" for k, v in result.config.options.items() if v != _default(result, k))
    return f"{result.framework}:{result.strategy}{options}" + (f" ({emulated})" if emulated else "")


def _emulation(result: RunResult) -> str:
    return strategy_info(result.framework, result.strategy).emulation(result.config)


def _default(result: RunResult, option: str) -> object:
    return strategy_info(result.framework, result.strategy).options.__dataclass_fields__[option].default


def devices(result: RunResult) -> str:
    """How many, and on how many cores if they are of a CPU and have to share: their speed then says nothing."""
    count, cores = result.config.devices or 1, result.cores
    on_cpu = all("cpu" in row.device.lower() for row in result.processes)
    shared = on_cpu and not result.compiled and cores < count * result.config.threads
    return f"{count} on {cores} core{'s' if cores > 1 else ''}" if shared else str(count)


def size(count: float) -> str:
    """Bytes in the largest fitting unit; KiB is 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def same_step(result: RunResult) -> str:
    """Whether it took the same step, in a word."""
    if result.parity.passed is None:
        return "reference" if result.framework == "numpy" else "compiled" if result.compiled else "not judged"
    return "yes" if result.parity.passed else "NO"


def _deviation(result: RunResult) -> str:
    deviation = result.parity.max_relative_loss
    return "" if deviation is None else f"{deviation:.0e}"


def _metric(result: RunResult) -> str:
    return "" if result.metric_value is None else f"{result.metric_value:.4f}"


def _rate(result: RunResult) -> str:
    rate = result.examples_per_second
    return "" if rate is None else f"{rate.median:,.0f} [{rate.low:,.0f} .. {rate.high:,.0f}]"


def _state_bytes(result: RunResult) -> str:
    rows = result.processes
    measured = max(row.params_bytes + row.gradients_bytes + row.optimizer_bytes for row in rows)
    law = max(f.params_bytes + f.gradients_bytes + f.optimizer_bytes for f in result.predicted.footprints)
    return f"{size(measured)} ({size(law)})"


def _sent(result: RunResult) -> str:
    measured = sum(row.sent_bytes_per_step for row in result.processes)
    topology = strategy_info(result.framework, result.strategy).topology(result.config)
    counted = {row.role for row in result.processes if row.sent_bytes_per_step}
    unseen = any(spec.serves and spec.role not in counted for spec in topology)  # it serves on another machine
    return f"{'at least ' if unseen else ''}{size(measured)} ({size(result.predicted.sent_bytes_per_step)})"


def measures(result: RunResult) -> str:
    """The strategy's own quantities, a line each, over all its processes; "" if it has none."""
    lines = []
    for measure in strategy_info(result.framework, result.strategy).measures:
        values = [row.measures[measure.name] for row in result.processes if measure.name in row.measures]
        shown = dict.fromkeys(f"{value:.4g}" for value in ([min(values), max(values)] if values else []))
        lines += [f"{measure.name}: {' to '.join(shown)} {measure.unit}: {measure.meaning}"] if values else []
    return "\n".join(lines)


def columns(results: Sequence[RunResult]) -> list[Column]:
    """The columns of a comparison; the metric's name is that of its workload."""
    metric = results[0].metric_name.replace("_", " ") if results else "metric"
    return [
        ("strategy", cell),
        ("devices", devices),
        ("dtype", lambda r: r.dtype),
        ("same step", same_step),
        ("loss deviation", _deviation),
        (metric, _metric),
        ("examples/s [95 %]", _rate),
        ("state/device (law)", _state_bytes),
        ("sent/step (law)", _sent),
        ("start-up s", lambda r: f"{r.startup_seconds:.1f}"),
    ]


def _told(header: str, result: RunResult) -> bool:
    """Of a run that compiled and took no step, only what comes before any measurement."""
    return not result.compiled or header in ("strategy", "devices", "dtype", "same step")


def comparison(results: Sequence[RunResult], failures: Sequence[tuple[str, str]] = ()) -> str:
    """The table of a comparison.

    Args:
        results: One row each.
        failures: Cell and status of what left no result; they get a row each, too.
    """
    shown = columns(results)
    rows = [[value(result) if _told(header, result) else "" for header, value in shown] for result in results]
    headers = [header for header, _ in shown]
    for name, status in failures:
        told = {"strategy": name, "same step": status}
        rows.append([told.get(header, "") for header in headers])
    return github(headers, rows)


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


def github(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """A table in GitHub's format, every cell as it is; with a width, cells are wrapped until the table fits into it."""
    wrapped = None if width is None else _column_widths(headers, rows, width)
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True, maxcolwidths=wrapped)


def _column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widest columns cut down alike until all fit into a width; not into headers, nor into a word of the first."""
    least = [len(header) + 2 for header in headers]  # tabulate pads them
    least[0] = max(least[0], *(len(word) for row in rows for word in row[0].split()))
    natural = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = least
    for most in range(max(natural), 0, -1):
        widths = [max(header, min(wanted, most)) for header, wanted in zip(least, natural, strict=True)]
        if sum(widths) + 3 * len(widths) + 1 <= width:
            break
    return widths


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
    ranked = [r for r in judged if r.examples_per_second and not _emulation(r)]
    if len(ranked) > 1:
        fastest = max(ranked, key=lambda r: r.examples_per_second.median if r.examples_per_second else 0.0)
        sentence += f"; fastest here: {cell(fastest)}"
    return sentence + "."
