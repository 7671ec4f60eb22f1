"""What was compiled for hardware that is not here, as a table: bytes and counts of one core, never a speed."""

from collections.abc import Sequence

from samestep.common.ledger import Compiled, gib
from samestep.common.runtime.records import RunResult
from samestep.experiments.text import github, size

HEADERS = (
    "compiled for",
    "workload",
    "mesh",
    "arguments (predicted state)",
    "temporaries",
    "code",
    "memory needed",
    "memory there",
    "fits",
    "FLOP",
    "collectives",
)


def compiled(results: Sequence[RunResult]) -> str:
    """The table of all that were compiled, and a line for each that does not fit; "" if none was compiled."""
    found = [(result, result.compiled) for result in results if result.compiled is not None]
    if not found:
        return ""
    table = github(HEADERS, [_row(result, step) for result, step in found])
    lines = [f"{result.workload} does not fit: {step.shortage}." for result, step in found if not step.fits]
    said = f"One step, as seen from one core, by {found[0][1].compiler}: compiled, never run."
    return "\n\n".join([table, "\n".join([*lines, said])])


def _row(result: RunResult, step: Compiled) -> list[str]:
    predicted = result.predicted.footprints[0]
    state = size(predicted.params_bytes + predicted.optimizer_bytes)
    kinds = (f"{each.count} {each.name} of {size(each.bytes)}" for each in step.collectives)
    return [
        step.topology,
        result.workload,
        result.mesh,
        f"{size(step.argument_bytes)} ({state})",
        _size(step.temporary_bytes),
        _size(step.code_bytes),
        size(step.needed_bytes),
        gib(step.hbm_bytes),
        "yes" if step.fits else "NO",
        "" if step.flops is None else f"{step.flops:.3e}",
        ", ".join(kinds) or ("none" if step.fits else ""),
    ]


def _size(count: int | None) -> str:
    return "" if count is None else size(count)
