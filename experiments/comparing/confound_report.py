"""The confounds of the rows of a comparison: which rows may not be ranked, why, and what the user allowed."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from samestep.common.errors import count
from samestep.common.judging.confounds import CONFOUNDS, Circumstances, Confound, find_in_rounds, split_allowed
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.speeds import Confounds, Rounds, share_cores
from samestep.experiments.printing.columns import cell
from samestep.experiments.printing.text import fill

LEAST_RANKED = 2
"""The fewest rounds with which a table ranks rows."""
_DIGITS = 8
"""The number of digits of a digest in messages."""
_MACHINE = {"host": "host", "system": "system", "cpu": "CPU", "memory_bytes": "memory", "cores": "cores"}
"""Field of a result's machine -> its name in messages."""


def confounds(
    row: Rounds, other: Rounds, labels: tuple[str, str] = ("", ""), is_same_strategy: bool = False
) -> list[Confound]:
    """Finds what keeps two rows from being ranked, in the rounds that both have.

    Args:
        row: A row.
        other: The row to rank it against.
        labels: Their names in messages; by default their cells.
        is_same_strategy: Whether both are runs of one strategy; a disturbance of both alike then does not count.
    """
    pairs = [
        (circumstances(one, labels[0]), circumstances(two, labels[1])) for one, two in zip(row, other, strict=False)
    ]
    return find_in_rounds(pairs, is_same_strategy)


def find_stops(allowed: Collection[str]) -> Confounds:
    """Makes the function that names the confounds of two rows that stop a ranking.

    Args:
        allowed: The confounds that the user allowed.
    """
    return lambda row, other: [each.name for each in split_allowed(confounds(row, other), allowed)[0]]


def explain_confounds(rows: Mapping[str, Rounds], reference: str | None, allowed: Collection[str]) -> str:
    """Returns which rows are not ranked against the reference and why, and which are ranked despite confounds; "" if none.

    Args:
        rows: The rows by cell.
        reference: The cell that the others are compared with.
        allowed: The confounds that the user allowed.
    """
    if reference not in rows or len(rows[reference]) < LEAST_RANKED:
        return ""
    found = {
        cell: confounds(row, rows[reference], (cell, reference))
        for cell, row in rows.items()
        if cell != reference and row[0].is_trained
    }
    stops = _list({cell: split_allowed(every, allowed)[0] for cell, every in found.items()})
    passes = _list({cell: split_allowed(every, allowed)[1] for cell, every in found.items()})
    stops = [f"Not ranked against {reference}, unless --allow NAME is given:", *stops] if stops else []
    passes = [f"Ranked against {reference} despite this, because of --allow:", *passes] if passes else []
    return "\n".join(fill(line, indent="  ") for line in [*stops, *passes])


def _list(found: Mapping[str, Sequence[Confound]]) -> list[str]:
    """Returns a line for each confound, with the rows that it affects."""
    about: dict[str, dict[str, list[str]]] = {name: {} for name in CONFOUNDS}
    for row, every in found.items():
        for each in every:
            for run, how in {**each.at_fault, **({row: each.differs} if each.differs else {})}.items():
                runs = about[each.name].setdefault(how, [])
                runs += [run] if run not in runs else []
    lines = {name: [f"{', '.join(runs)} ({how})" for how, runs in ways.items()] for name, ways in about.items()}
    return [f"* {name}: {'; '.join(parts)}" for name, parts in lines.items() if parts]


def circumstances(result: RunResult, label: str = "") -> Circumstances:
    """Returns everything besides its strategy that may have affected the speed of a run.

    Args:
        result: The result of the run.
        label: Its name in messages; by default its cell.
    """
    threads = f" of {result.config.threads} threads" if result.config.threads > 1 else ""
    shared = f"{result.config.devices} devices{threads} on {count(result.cores, 'core')}"
    distorted = {
        "shared-cores": shared if share_cores(result) else "",
        "hosts": _differ(result) if result.hosts else "",
        "emulation": result.emulation,
    }
    return Circumstances(
        label=label or cell(result),
        facts=_facts(result),
        distorted={name: how for name, how in distorted.items() if how},
        compilations=result.conditions.compilations,
        others_share=result.conditions.others_share,
        stolen_share=result.conditions.stolen_share,
    )


def _facts(result: RunResult) -> dict[str, dict[str, str]]:
    """Returns facts from the request and from the records of a run, without those that an older result lacks."""
    config, recorded = result.config, result.conditions
    state = sorted({row.optimizer_dtype for row in result.processes if row.optimizer_dtype})
    single = {
        "dtype": result.dtype,
        "optimizer-dtype": "+".join(state),
        "optimizer": f"{result.optimizer} at rate {config.learning_rate:g}",
        "batch": str(result.global_batch_size),
        "data": result.dataset_sha256[:_DIGITS],
        "parameters": "" if recorded.num_parameters is None else f"{recorded.num_parameters:,}",
        "threads": str(config.threads),
        "bandwidth": result.config.bandwidth or "loopback",
        "cores": _compute(result),
    }
    drawn = {"drawn": recorded.order_sha256[:_DIGITS]} if recorded.order_sha256 else {}
    machine = {word: result.machine.get(name) for name, word in _MACHINE.items()}
    versions = result.versions | {"commit": (result.git_commit or "")[:_DIGITS]}
    return {
        **{name: {"": value} for name, value in single.items() if value},
        "workload": {"": result.workload, "digest": result.workload_digest[:_DIGITS]},
        "order": {"seed": str(result.seed), "first step": str(result.first_step), **drawn},
        "techniques": {name: str(value) for name, value in dataclasses.asdict(config.techniques).items()},
        "versions": {name: version for name, version in versions.items() if version},
        "machine": {word: str(value) for word, value in machine.items() if value not in (None, "")},
    }


def _compute(result: RunResult) -> str:
    """Returns the cores and the accelerators of a run; two runs are only equally matched if both agree."""
    accelerators = sum("cpu" not in row.device.lower() for row in result.processes)
    return str(result.cores) + (f" with {count(accelerators, 'accelerator')}" if accelerators else "")


def _differ(result: RunResult) -> str:
    from samestep.common.runtime.engines.rendezvous import find_differences  # here: most runs have one host

    return find_differences(result.hosts)
