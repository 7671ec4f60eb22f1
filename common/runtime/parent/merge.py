"""Merges the measurements of processes into a RunResult, with the machine, the commit and the command that repeats the run."""

import contextlib
import dataclasses
import functools
import os
import platform
import re
import shlex
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.files.reading import memory_bytes
from samestep.common.flags import Scalar
from samestep.common.judging.metrics import direction_of
from samestep.common.judging.parity import Parity
from samestep.common.ledger import Ledger, exchanges_of
from samestep.common.request import Launch, RunConfig
from samestep.common.run import arguments, as_config
from samestep.common.runtime.measured import Measured, Usage, conditions
from samestep.common.runtime.records import SCHEMA_VERSION, DeviceRow, HostBytes, RunResult, Throughput
from samestep.common.runtime.step_parts import mean
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params

_SAME = {field.name for field in dataclasses.fields(RunResult)} & {field.name for field in dataclasses.fields(Measured)}
"""The fields that a result takes from rank 0 unchanged."""


def merge(run: Run, launch: Launch, measured: Sequence[Measured], parity: Parity) -> RunResult:
    """Composes the result of a run.

    Args:
        run: What was trained.
        launch: How it was started.
        measured: The measurements of every process except servers, rank 0 first.
        parity: The verdict.
    """
    first, config = measured[0], as_config(run, launch)
    step_median, throughput, compile_seconds = _time(run, first)
    status = "not the same step" if parity.passed is False else "compiled" if first.compiled else "trained"
    measured_as_it_is = {name: getattr(first, name) for name in _SAME}
    note = "; ".join(filter(None, (first.emulation, first.device_note)))
    return RunResult(
        **measured_as_it_is
        | {"device_note": note, "step_parts": mean([each.step_parts for each in measured], step_median)},
        schema_version=SCHEMA_VERSION,
        status=status,
        config=config,
        framework=run.framework,
        strategy=run.strategy.name,
        workload=run.workload.name,
        mesh=str(run.mesh),
        dtype=run.dtype,
        seed=run.seed,
        steps=0 if first.compiled else run.steps,
        global_batch_size=run.batch_size,
        optimizer=run.optimizer.name,
        metric_name=run.workload.metric,
        metric_direction=direction_of(run.workload.metric),
        examples_per_second=throughput,
        step_seconds_median=step_median,
        compile_seconds=compile_seconds,
        parity=parity,
        predicted=_predict(run, measured),
        conditions=conditions(
            num_params(run.workload.model),
            [each.watched for each in measured],
            sum(usage.cpu_seconds for each in measured for usage in (each, *each.served)),
        ),
        exchanges=exchanges_of(first.sends),
        uncounted=_uncounted(run, first),
        processes=[row for each in measured for row in _device_rows(each)],
        machine=machine(),
        git_commit=git_commit(),
        workload_digest=run.workload.digest,
        command=command(config),
    )


def _predict(run: Run, measured: Sequence[Measured]) -> Ledger:
    """Returns the predicted costs of the observed step."""
    exact, backend = run.strategy.cost_as_measured, measured[0].backend
    if exact is None:
        return run.strategy.cost(run, backend)
    return exact(run, backend, [each.measures for each in measured])


def _uncounted(run: Run, first: Measured) -> tuple[str, ...]:
    """Returns the roles of servers on other machines, whose traffic cannot be measured from here."""
    counted = {usage.role for usage in first.served if usage.sent_bytes_per_step}
    return tuple(spec.role for spec in run.strategy.topology(run) if spec.serves and spec.role not in counted)


def _time(run: Run, first: Measured) -> tuple[float | None, Throughput | None, float | None]:
    """Returns a step's median seconds, examples per second, and how much longer the first window took than later steps would."""
    per_step = [s / n for s, n in zip(first.window_seconds, first.window_steps, strict=True)]
    if not (timed := per_step[1:]):
        return None, None, None
    step_median, rates = statistics.median(timed), [run.batch_size / seconds for seconds in timed]
    throughput = Throughput(statistics.median(rates), min(rates), max(rates), len(rates))
    return step_median, throughput, first.window_seconds[0] - first.window_steps[0] * step_median


def _device_rows(measured: Measured) -> list[DeviceRow]:
    """Returns one row per device. A chief also reports the processes that serve it, one device each, in the topology's order."""
    owners = [measured, *measured.served] if measured.served else [measured] * len(measured.footprints)
    rows = []
    for number, (owner, footprint) in enumerate(zip(owners, measured.footprints, strict=True)):
        usage = {field.name: getattr(owner, field.name) for field in dataclasses.fields(Usage)}
        if number and not measured.served:  # what the process did as a whole is in its first row only
            usage |= dict.fromkeys((name for name in usage if name.endswith("_bytes_per_step")), 0.0) | {
                "cpu_seconds": 0.0
            }
            usage |= {"busy_seconds": None, "idle_seconds": None}
        measures = measured.measures if owner is measured else {}
        sends = () if number else measured.sends
        rows.append(DeviceRow(**dataclasses.asdict(footprint), **usage, measures=measures, sends=sends))
    return rows


def command(config: RunConfig) -> str:
    """Returns the command that repeats a run, without the directory it was written to.

    It does not use `python -m`, with which a `random.py` in the current folder would shadow Python's.
    """
    return shlex.join(["samestep", "run", *arguments(config)])


def machine() -> dict[str, Scalar]:
    """Returns a description of this machine."""
    cpu = None
    with contextlib.suppress(OSError):
        cpu = re.search(r"^model name\s*:[ \t]*(\S.*\S)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
    }


@functools.cache
def git_commit() -> str | None:
    """Returns the commit of the checkout that holds this code, or None if there is no checkout. It runs git once."""
    line = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(line, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def count_by_host(
    run: Run, hosts: Sequence[Mapping[str, str]], used: Sequence[Usage], ledger: Ledger, backend: str
) -> tuple[HostBytes, ...]:
    """Adds up the bytes that the processes of each host sent and received.

    Args:
        run: What was trained.
        hosts: As `read_hosts` returns them.
        used: The usage of each process.
        ledger: The prediction of the run.
        backend: What carried its exchanges.
    """
    roles = [spec.role for spec in run.strategy.topology(run)]
    routes = run.strategy.routes(run, ledger, backend)
    found = []
    for host in hosts:
        own = set(host["processes"].split())
        rows = [row for row in used if row.role in own]
        sent_away = sum(row.sent_away_bytes_per_step for row in rows)
        measured = HostBytes(
            host=host["host"],
            within_bytes=sum(row.sent_bytes_per_step for row in rows) - sent_away,
            sent_bytes=sent_away,
            received_bytes=sum(row.received_away_bytes_per_step for row in rows),
        )
        found.append(_with_prediction(measured, {number for number, role in enumerate(roles) if role in own}, routes))
    return tuple(found)


def _with_prediction(measured: HostBytes, own: set[int], routes: Mapping[tuple[int, int], float]) -> HostBytes:
    """Adds the bytes that the routes between processes predict for a host; `own` has the places of its processes."""
    if not routes:
        return measured
    ways = {(True, True): 0.0, (True, False): 0.0, (False, True): 0.0, (False, False): 0.0}
    for (source, to), size in routes.items():
        ways[source in own, to in own] += size
    return dataclasses.replace(
        measured,
        predicted_within_bytes=ways[True, True],
        predicted_sent_bytes=ways[True, False],
        predicted_received_bytes=ways[False, True],
    )
