"""In the place of the loop: a step is compiled, for hardware that need not be there, and none is taken."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.batch import Batch, batches
from common.config import RunConfig
from common.ledger import Compiled
from common.runtime.records import ProcessRecord
from common.workload.data.dataset import Split
from common.workload.table import Workload

CompileStep = Callable[[Workload, RunConfig, Batch, Path], Compiled]
"""What a row's file exports as `compile_step` beside `build`; the path is the run directory."""


def run(
    compile_step: CompileStep, workload: Workload, config: RunConfig, split: Split, record: ProcessRecord
) -> dict[str, Any]:
    """Compiles one step.

    Returns:
        What the process leaves in `process-ROLE.json`: like a run's of no steps, and `compiled`.
    """
    batch = next(batches(split.train_inputs, split.train_targets, config.batch_size or 0, config.seed))
    record.enter("first step")  # which may take as long as one
    compiled = compile_step(workload, config, batch, record.run)
    missing = "" if compiled.fits else f": {shortage(compiled)}"
    return {
        "first_step": 0,
        "window_steps": [],
        "window_seconds": [],
        "losses": [],
        "metric_value": None,
        "exchanges": [],
        "footprints": [],
        "measures": {},
        "sent_bytes_per_step": 0.0,
        "received_bytes_per_step": 0.0,
        "served": [],
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "dataset_sha256": split.sha256,
        "device_note": f"compiled for {compiled.topology}, nothing ran{missing}",
        "compiled": compiled,
    }


def shortage(compiled: Compiled) -> str:
    """How much memory a step that does not fit needs, and how much there is."""
    generation = compiled.topology.partition(":")[0]
    return f"needs {gib(compiled.needed_bytes)}, {generation} has {gib(compiled.hbm_bytes)}"


def gib(count: int) -> str:
    """Bytes as memory is sold: 15.75 GiB."""
    return f"{count / 2**30:.2f}".removesuffix("0") + " GiB"
