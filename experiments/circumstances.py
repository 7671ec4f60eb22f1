"""What the confound linter has to know of a result."""

import dataclasses

from samestep.common.evidence.confounds import Circumstances
from samestep.common.runtime.records import RunResult
from samestep.experiments.columns import cell, share_cores
from samestep.experiments.text import count

_DIGITS = 8
"""Of a digest, in messages."""
_MACHINE = {"host": "host", "system": "system", "cpu": "CPU", "memory_bytes": "memory", "cores": "cores"}
"""What a result has of its machine -> how messages call it."""


def circumstances(result: RunResult, label: str = "") -> Circumstances:
    """Everything beside its strategy that may have made a run as fast as it was.

    Args:
        result: Of the run.
        label: How messages call it; its cell, unless given.
    """
    threads = f" of {result.config.threads} threads" if result.config.threads > 1 else ""
    shared = f"{result.config.devices} devices{threads} on {count(result.cores, 'core')}"
    distorted = {
        "shared-cores": shared if share_cores(result) else "",
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
    """What was asked for and what was recorded; what an older result lacks is left out."""
    config, recorded = result.config, result.conditions
    state = sorted({row.optimizer_dtype for row in result.processes if row.optimizer_dtype})
    single = {
        "dtype": result.dtype,
        "optimizer-dtype": "+".join(state),
        "optimizer": f"{result.optimizer} at rate {config.learning_rate:g}",
        "batch": str(result.global_batch_size),
        "data": result.dataset_sha256[:_DIGITS],
        "order": recorded.order_sha256[:_DIGITS],
        "parameters": "" if recorded.num_parameters is None else f"{recorded.num_parameters:,}",
        "workload": f"{result.workload} [{result.workload_digest[:_DIGITS]}]",
        "threads": str(config.threads),
        "cores": _compute(result),
    }
    machine = {word: result.machine.get(name) for name, word in _MACHINE.items()}
    versions = result.versions | {"commit": (result.git_commit or "")[:_DIGITS]}
    return {
        **{name: {"": value} for name, value in single.items() if value},
        "techniques": {name: str(value) for name, value in dataclasses.asdict(config.techniques).items()},
        "versions": {name: version for name, version in versions.items() if version},
        "machine": {word: str(value) for word, value in machine.items() if value not in (None, "")},
    }


def _compute(result: RunResult) -> str:
    """The cores of a run, and its accelerators: two strategies on more of either are not equally matched."""
    accelerators = sum("cpu" not in row.device.lower() for row in result.processes)
    return str(result.cores) + (f" with {count(accelerators, 'accelerator')}" if accelerators else "")
