"""Measures how long a report about many runs takes, how large its page is, and how long a browser takes to sort it.

`python -m benchmarks.cost.report [RUNS]` creates that many run directories (default 1,000), writes the report about them five
times, and sorts each column of the page once if chromium is installed.
"""

import dataclasses
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from samestep.common.catalog import catalogue
from samestep.common.errors import ConfigError
from samestep.common.judging.parity import Parity
from samestep.common.ledger import exchanges_of
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.records import SCHEMA_VERSION, DeviceRow, RunResult, Throughput
from samestep.common.runtime.step_parts import PARTS, StepParts
from samestep.common.steps.log import METRICS
from samestep.common.strategy import Run

STEPS = 100
TIMES = 5
SORT = """() => [...document.querySelectorAll('#table thead button')].map(button => {
    const start = performance.now();
    button.click();
    document.getElementById('table').getBoundingClientRect();
    return performance.now() - start;
})"""


def main(arguments: Sequence[str]) -> None:
    """Creates the runs, writes the report, and sorts the page."""
    count = int(arguments[0]) if arguments else 1000
    with tempfile.TemporaryDirectory() as scratch:
        home, page = Path(scratch, "runs"), Path(scratch, "report.html")
        for number, result in zip(range(count), results(), strict=False):
            (directory := home / f"{number:05}").mkdir(parents=True)
            write_json(directory / "config.json", result.config)
            window = {"step": STEPS, "seconds": 1.0, "losses": result.losses}
            (directory / METRICS).write_text(json.dumps(window) + "\n")
            write_json(directory / "result.json", result)
        seconds, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(TIMES):
            start = time.perf_counter()
            line = [sys.executable, "-m", "samestep", "report", str(home), "-o", str(page)]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / TIMES
        told = f"{statistics.median(seconds):.2f} s, {processor:.2f} s of them on a processor (bar 3 s)"
        print(f"{count} runs: {told}; {page.stat().st_size / 1e6:.1f} MB (bar 6 MB)")
        sorting = sort_milliseconds(page)
        print(f"sorting by a column: {statistics.median(sorting):.0f} ms, at most {max(sorting):.0f} ms (bar 40 ms)")


def results() -> Iterator[RunResult]:
    """Yields results of every strategy, with ever new sizes and numbers of devices, without end."""
    rows = [(framework, row) for framework, row in catalogue() if framework != "numpy"]
    number = 0
    while True:
        for framework, row in rows:
            devices = 2 if row.axes else 1
            asked = RunConfig(
                framework, row.name, f"digits-mlp+width={32 + 8 * (number % 10)}", devices=devices, batch_size=48
            )
            asked = dataclasses.replace(asked, steps=STEPS, seed=number, dtype=row.dtypes[0])
            try:
                run = parse(asked)
            except ConfigError:  # the row does not train this model
                continue
            yield result(run, as_config(run, launch_of(asked)), number)
        number += 1


def result(run: Run, config: RunConfig, number: int) -> RunResult:
    """Returns a plausible result of a run.

    Args:
        run: The run.
        config: The request of the run.
        number: A number that makes the figures differ from those of other runs.
    """
    noise = [abs(math.sin(number + step)) for step in range(run.steps)]
    losses = tuple(2.3 * math.exp(-step / 40) + 0.01 * each for step, each in enumerate(noise))
    deviations = tuple(1e-7 * each for each in noise)
    rate = 1e4 * (1 + noise[0])
    predicted = run.strategy.cost(run, run.strategy.backend)
    held = [dataclasses.asdict(each) for each in predicted.devices()]
    devices = [
        DeviceRow(role=f"rank-{rank}", rank=rank, measures={}, sends=predicted.sends, **each)
        for rank, each in enumerate(held)
    ]
    return RunResult(
        schema_version=SCHEMA_VERSION,
        status="trained",
        config=config,
        framework=run.framework,
        strategy=run.strategy.name,
        workload=run.workload.name,
        mesh=str(run.mesh),
        dtype=run.dtype,
        seed=run.seed,
        first_step=0,
        steps=run.steps,
        global_batch_size=run.batch_size,
        optimizer=run.optimizer.name,
        losses=losses,
        metric_name="accuracy",
        metric_value=0.9,
        metric_direction="higher",
        examples_per_second=Throughput(rate, 0.8 * rate, 1.1 * rate, 20),
        step_seconds_median=48 / rate,
        step_parts=StepParts(**dict.fromkeys(PARTS, 48 / rate / len(PARTS)), steps=20, own_step_seconds=48 / rate),
        startup_seconds=noise[1],
        compile_seconds=None,
        parity=Parity("numpy:oracle", run.steps, max(deviations), None, True, deviations=deviations),
        predicted=predicted,
        exchanges=exchanges_of(predicted.sends),
        processes=devices,
        cores=2,
        attempt=1,
        versions={"python": "3.11", "numpy": "2.4"},
        machine={"cpu": "made up", "cores": 2},
        git_commit=None,
        dataset_sha256="0" * 64,
        workload_digest="0" * 64,
        command=f"python -m samestep run {run.name} --seed {run.seed}",
        device_note="made up",
        backend=run.strategy.backend,
        emulation=run.strategy.emulation,
    )


def sort_milliseconds(page: Path) -> list[float]:
    """Returns the milliseconds that the browser takes to sort each column of a page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return [math.nan]
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        opened = browser.new_page()
        opened.goto(page.as_uri())
        taken = opened.evaluate(SORT)
        browser.close()
    return taken


if __name__ == "__main__":
    main(sys.argv[1:])
