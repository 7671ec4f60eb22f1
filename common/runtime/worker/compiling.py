"""Compiles a step for hardware that need not be present, instead of training."""

from collections.abc import Callable
from pathlib import Path

from samestep.common.batch import Batch, batches
from samestep.common.ledger import Compiled
from samestep.common.runtime.measured import Measured
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.worker.usage import count
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import Split

CompileStep = Callable[[Run, Batch, Path], Compiled]
"""The function that a strategy's file exports as `compile_step`, next to `build`; the path is the run directory."""


def compile_and_measure(compile_step: CompileStep, run: Run, split: Split, file: ProcessFile) -> Measured:
    """Compiles one step and returns what was measured.

    Args:
        compile_step: The strategy's function that compiles a step.
        run: What would be trained.
        split: The data set, which gives the shapes of its batches.
        file: The file of the present process.
    """
    batch = next(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed))
    file.enter("first step")  # it may take as long
    compiled = compile_step(run, batch, file.directory)
    missing = f": {compiled.shortage}" if compiled.shortage else ""
    return Measured(
        role=file.role,
        rank=file.rank,
        peak_rss_bytes=count().peak_rss_bytes,
        dataset_sha256=split.sha256,
        device_note=f"compiled for {compiled.topology}, nothing ran{missing}",
        compiled=compiled,
    )
