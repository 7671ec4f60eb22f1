"""From what the processes measured to one RunResult."""

import dataclasses
import os
import platform
import shlex
import statistics
import subprocess
from pathlib import Path
from typing import Any

from common.config import RunConfig, Scalar
from common.evidence.metrics import METRICS
from common.evidence.parity import Parity
from common.evidence.statistics import median_interval
from common.ledger import Exchange, Footprint, read_compiled
from common.runtime.records import SCHEMA_VERSION, DeviceRow, RunResult, Throughput
from common.strategy import StrategyInfo, strategy_info
from common.workload.table import Workload


def merged(
    config: RunConfig, workload: Workload, info: StrategyInfo, records: list[dict[str, Any]], parity: Parity
) -> RunResult:
    """The result of a run, from what its processes measured.

    Args:
        config: A checked configuration.
        workload: What was trained.
        info: The strategy's row.
        records: Of every process that does not merely serve, rank 0 first.
        parity: The verdict.
    """
    first = records[0]
    batch_size = config.batch_size or 0
    per_step = [s / n for s, n in zip(first["window_seconds"], first["window_steps"], strict=True)]
    first_step, *timed = per_step or [0.0]
    throughput = step_median = None
    if timed:
        step_median = statistics.median(timed)
        median, low, high = median_interval([batch_size / seconds for seconds in timed])
        throughput = Throughput(median, low, high, len(timed))
    predicted = info.law(workload, config, backend(info, first))
    compiled = first.get("compiled")
    status = "not the same step" if parity.passed is False else "compiled" if compiled else "trained"
    return RunResult(
        schema_version=SCHEMA_VERSION,
        status=status,
        config=config,
        framework=config.framework,
        strategy=config.strategy,
        workload=config.workload,
        mesh=config.mesh or "",
        dtype=config.dtype,
        seed=config.seed,
        first_step=first["first_step"],
        steps=0 if compiled else config.steps or 0,
        global_batch_size=batch_size,
        optimizer=config.optimizer or "",
        losses=first["losses"],
        metric_name=workload.metric,
        metric_value=first["metric_value"],
        metric_direction=METRICS[workload.metric].direction,
        examples_per_second=throughput,
        step_seconds_median=step_median,
        startup_seconds=first["startup_seconds"],
        compile_seconds=None if step_median is None else first_step - step_median,
        parity=parity,
        predicted=predicted,
        exchanges=[Exchange(**values) for values in first["exchanges"]],
        processes=[row for record in records for row in _device_rows(record)],
        cores=first["cores"],
        attempt=first["attempt"],
        versions=first["versions"],
        machine=machine(),
        git_commit=_git_commit(),
        dataset_sha256=first["dataset_sha256"],
        workload_digest=workload.digest,
        command=command(config),
        device_note="; ".join(note for note in (info.emulation(config), first["device_note"]) if note),
        compiled=read_compiled(compiled) if compiled else None,
    )


def backend(info: StrategyInfo, record: dict[str, Any]) -> str:
    """What carried the exchanges: NCCL between GPUs, else what the row says."""
    on_gpu = any("cuda" in row["device"] for row in record["footprints"])
    return "nccl" if on_gpu and info.backend == "gloo" else info.backend


def _device_rows(record: dict[str, Any]) -> list[DeviceRow]:
    """One row a device; a chief answers for all that serve it, one device each, in the topology's order."""
    footprints, served = record["footprints"], record.get("served", [])
    owners = [record, *served] if served else [record] * len(footprints)
    rows = []
    for number, (owner, values) in enumerate(zip(owners, footprints, strict=True)):
        first = bool(served) or number == 0
        rows.append(
            DeviceRow(
                role=owner["role"],
                rank=owner["rank"],
                **dataclasses.asdict(Footprint(**values)),
                peak_rss_bytes=owner["peak_rss_bytes"],
                sent_bytes_per_step=owner["sent_bytes_per_step"] if first else 0.0,
                received_bytes_per_step=owner["received_bytes_per_step"] if first else 0.0,
                measures=owner["measures"],
            )
        )
    return rows


def command(config: RunConfig) -> str:
    """The line that repeats a run, without the place it was written to."""
    parts = ["python -m experiments.run"]
    axes = strategy_info(config.framework, config.strategy).axes
    for field in dataclasses.fields(RunConfig):
        value = getattr(config, field.name)
        if (
            field.name in ("out", "prepare", "options", "techniques")
            or value is None
            or (field.name == "devices" and config.mesh)
        ):
            continue
        if field.name == "mesh":
            plain = value == str(dataclasses.replace(config, mesh=None).as_mesh(axes))
            parts += [f"--mesh {value}"] if not plain else [f"--devices {config.devices}"] * ((config.devices or 1) > 1)
        elif field.name == "parity":
            parts.append("--parity" if value else "--no-parity")
        elif field.name in ("framework", "strategy", "workload") or value != field.default:
            parts.append(f"--{field.name.replace('_', '-')} {shlex.quote(str(value))}")
    for name, value in config.options.items():
        if value is not None and value is not False:
            given = "" if value is True else f" {shlex.quote(str(value))}"
            parts.append(f"--{name.replace('_', '-')}{given}")
    return " ".join(parts)


def machine() -> dict[str, Scalar]:
    """What the run ran on."""
    cpu = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {"system": platform.platform(), "cpu": cpu or platform.processor(), "cores": os.cpu_count()}


def _git_commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
