"""A table of steps that were compiled for hardware that is not present: bytes and counts of one core, but no speed."""

from collections.abc import Sequence

from samestep.common.ledger import Compiled, gib
from samestep.common.runtime.records import RunResult
from samestep.experiments.printing.text import github, screen_width, size, spell


def compiled(results: Sequence[RunResult]) -> str:
    """Returns the table of compiled steps, a column for each, and a line for each that does not fit; "" if there are none."""
    found = [(result, result.compiled) for result in results if result.compiled is not None]
    if not found:
        return ""
    facts = [_facts(result, step) for result, step in found]
    names, *rows = ([name, *(each[name] for each in facts)] for name in facts[0])
    table = github(names, rows, screen_width())
    lines = [f"{result.workload} does not fit: {step.shortage}." for result, step in found if not step.fits]
    said = f"One step, as seen from one core, by {found[0][1].compiler}: compiled, never run."
    return "\n\n".join([table, "\n".join([*lines, said])])


def _facts(result: RunResult, step: Compiled) -> dict[str, str]:
    predicted = result.predicted.footprints[0]
    state = size(predicted.params_bytes + predicted.optimizer_bytes)
    kinds = (f"{each.count} {each.name} of {size(each.bytes)}" for each in step.collectives)
    return {
        "compiled for": step.topology,
        "workload": result.workload,
        "mesh": result.mesh,
        "arguments (predicted state)": f"{size(step.argument_bytes)} ({state})",
        "temporaries": size(step.temporary_bytes),
        "code": size(step.code_bytes),
        "memory needed": size(step.needed_bytes),
        "memory available": gib(step.hbm_bytes),
        "fits": "yes" if step.fits else "NO",
        "FLOP": spell(step.flops, ".3e"),
        "collectives": ", ".join(kinds) or ("none" if step.fits else ""),
    }
