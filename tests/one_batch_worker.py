"""A worker that leaves out what a test does not look at, and does many tasks.

Where ONE_BATCH asks for it, it evaluates on one batch of the held-out examples. That shows that a strategy predicts as the
oracle does; all of the examples often take longer than a test's few steps. Steps are taken under a profiler only where
FIND_PARTS asks for it.
"""

import dataclasses
import importlib
import os
from pathlib import Path

from samestep.common.program import Program
from samestep.common.request import Launch
from samestep.common.runtime.directory import ANSWERED
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.worker import loop, worker
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import Split

ONE_BATCH = "SAMESTEP_TEST_ONE_BATCH"
FIND_PARTS = "SAMESTEP_TEST_PARTS"
WORKER = "SAMESTEP_TEST_WORKER"
"""Names the module whose `main` takes over."""
WALK = "walk"
"""The name of a file in a folder of tasks that one process does one after the other."""
evaluate = loop.evaluate


def evaluate_one_batch(program: Program, run: Run, launch: Launch, data: Split, file: ProcessFile) -> float | None:
    """Evaluates as every worker does, on a part of the examples, of random ones as well."""
    few = slice(run.batch_size)
    part = dataclasses.replace(data, test_inputs=data.test_inputs[few], test_targets=data.test_targets[few])
    return evaluate(program, run, dataclasses.replace(launch, evaluate=True), part, file)


def find_no_parts(*_: object) -> None:
    """Leaves out the profiled steps, which take a sixth of a short run and tell where its seconds go."""


def main(arguments: list[str]) -> int:
    """Does what every worker does, or what a test's own does."""
    if not os.environ.get(FIND_PARTS):
        loop.measure_parts = find_no_parts
    if module := os.environ.get(WORKER):
        return importlib.import_module(module).main(arguments)
    if os.environ.get(ONE_BATCH):
        loop.evaluate = evaluate_one_batch
    folder = Path(arguments[0])
    if (folder / WALK).exists():
        codes = [worker.main([str(task)]) for task in sorted(each.parent for each in folder.glob("*/*.json"))]
        (folder / ANSWERED).touch()
        return max(codes)
    return worker.main(arguments)
