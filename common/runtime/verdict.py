"""From what the processes left to a RunResult: held against the oracle, with the cause if it does not fit."""

import dataclasses
import hashlib
import importlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.config import FRAMEWORKS, RunConfig
from common.errors import ParityFailed, WorkerFailed
from common.evidence.parity import Parity, judge, not_judged
from common.runtime.merge import merged
from common.runtime.records import DONE, RunResult, read_state, write_json
from common.strategy import StrategyInfo, TrainState, strategy_info
from common.workload.data.dataset import cache_directory
from common.workload.models.spec import init
from common.workload.table import Workload

ORACLE = "numpy:oracle"
Oracle = Callable[[RunConfig, float | None], Path | None]
"""Runs the oracle; None if it would take longer than so many seconds."""
Replay = Callable[[int], tuple[list[float], TrainState]]
"""Repeats the run up to a step: its losses and its state there."""


def finish(
    run: Path, config: RunConfig, workload: Workload, seconds: float, oracle: Oracle, replay: Replay | None
) -> RunResult:
    """Writes `result.json` and takes the reserved `error.json` away.

    Args:
        run: The run directory, its processes done.
        config: A checked configuration.
        workload: What was trained.
        seconds: What the run took, from the command to its end.
        oracle: Runs the oracle.
        replay: Repeats the run's first steps, for the diagnosis; None where that cannot be done.
    """
    info = strategy_info(config.framework, config.strategy)
    records = _records(run, info, config)
    parity = _parity(run, config, workload, info, records[0], seconds, oracle, replay)
    result = merged(config, workload, info, records, parity)
    write_json(run / "result.json", result)
    (run / "error.json").unlink(missing_ok=True)
    if info.name == "oracle":
        _keep(run, _curve_path(config, workload, result.dataset_sha256))
    return result


def raise_if_missed(result: RunResult) -> None:
    """Turns a missed parity into the error with exit code 4.

    Raises:
        ParityFailed: The run was judged and is not the same step.
    """
    if result.parity.passed is False:
        raise ParityFailed(f"{result.framework}:{result.strategy} did not take the same step: {result.parity.reason}")


def read_losses(run: Path) -> list[float]:
    """The losses in `metrics.jsonl`."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [loss for line in lines for loss in json.loads(line)["losses"]]


def wait_for_processes(run: Path, config: RunConfig) -> None:
    """Waits until every process has written its measurements.

    Raises:
        WorkerFailed: One did not within the run's timeout.
    """
    deadline = time.monotonic() + config.timeout_seconds
    for spec in strategy_info(config.framework, config.strategy).topology(config):
        while not spec.serves and _record(run, spec.role).get("phase") != DONE:
            if time.monotonic() > deadline:
                raise WorkerFailed(f"{spec.role} left no measurements within {config.timeout_seconds:g} s.")
            time.sleep(0.05)


def wall_seconds(run: Path) -> float:
    """How long ago the run's configuration was written or its first process started, whichever was later."""
    return time.time() - max((run / "config.json").stat().st_mtime, min(p.stat().st_ctime for p in run.glob("*.json")))


def _record(run: Path, role: str) -> dict[str, Any]:
    try:
        return json.loads((run / f"process-{role}.json").read_text())
    except (OSError, ValueError):
        return {}


def _records(run: Path, info: StrategyInfo, config: RunConfig) -> list[dict[str, Any]]:
    return [_record(run, spec.role) for spec in info.topology(config) if not spec.serves]


def _parity(
    run: Path,
    config: RunConfig,
    workload: Workload,
    info: StrategyInfo,
    record: dict[str, Any],
    seconds: float,
    oracle: Oracle,
    replay: Replay | None,
) -> Parity:
    if info.name == "oracle":
        return not_judged("the oracle is the reference")
    if info.compiled_cores(config.options):
        return not_judged("compiled, not trained")
    if config.parity is False:
        return not_judged("--no-parity")
    if not (info.synchronous and info.waits(config)):
        return not_judged("asynchronous: it promises accuracy, not the same step")
    reference = _reference(config, workload, record["dataset_sha256"], None if config.parity else seconds, oracle)
    if reference is None:
        return not_judged(f"the oracle would take longer than the run's own {seconds:.0f} s; --parity waits for it")
    parity = judge(
        ORACLE,
        config.dtype,
        record["first_step"],
        record["losses"],
        read_losses(reference),
        read_state(run).params,
        read_state(reference).params,
    )
    if parity.passed or replay is None:
        return parity
    diagnosis = importlib.import_module(FRAMEWORKS["numpy"] + ".diagnosis")
    first = record["first_step"]
    bad = (config.steps or 0) - 1 if parity.first_bad_step is None else parity.first_bad_step
    cause = diagnosis.diagnose(workload, config, first, bad, initial_state(workload, config), replay)
    return dataclasses.replace(parity, reason=f"{cause} ({parity.reason})")


def _reference(
    config: RunConfig, workload: Workload, dataset_sha256: str, budget_seconds: float | None, oracle: Oracle
) -> Path | None:
    path = _curve_path(config, workload, dataset_sha256)
    if (path / "state.npz").exists():
        return path
    asked = dataclasses.replace(
        config,
        framework="numpy",
        strategy="oracle",
        devices=1,
        mesh="data=1",
        dtype="float64",
        threads=1,
        options={},
        timeout_seconds=max(config.timeout_seconds, 60.0),
    )
    run = oracle(asked, budget_seconds)
    if run is not None:
        _keep(run, path)
    return run


def _curve_path(config: RunConfig, workload: Workload, dataset_sha256: str) -> Path:
    """Where the oracle's curve for this run is kept: by everything that decides its numbers, the oracle's code included."""
    numbers = [
        workload.digest,
        dataset_sha256,
        dataclasses.asdict(workload.optimizer(config)),
        dataclasses.asdict(config.techniques),
        config.batch_size,
        config.steps,
        config.seed,
        ""
        if config.start_from is None
        else hashlib.sha256((Path(config.start_from) / "state.npz").read_bytes()).hexdigest(),
        _source_digest(),
    ]
    key = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:24]
    return cache_directory() / "oracle" / key


def _source_digest() -> str:
    common = Path(__file__).parents[1]
    sources = [common / "batch.py", *sorted(common.glob("workload/**/*.py")), *sorted(common.glob("reference/**/*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def _keep(run: Path, path: Path) -> None:
    """Copies an oracle's curve into the cache, whole or not at all; a cache that cannot be written costs time only."""
    if path.exists():
        return
    whole = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        whole.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "metrics.jsonl", "state.npz"):
            shutil.copy(run / name, whole / name)
        os.replace(whole, path)
    except OSError:  # or another run has put the same curve there in the meantime
        shutil.rmtree(whole, ignore_errors=True)


def initial_state(workload: Workload, config: RunConfig) -> TrainState:
    """The state that every run of a workload starts from."""
    if config.start_from is not None:
        return read_state(Path(config.start_from))
    params = init(workload.model, config.seed)
    slots = {slot: {name: value * 0 for name, value in params.items()} for slot in workload.optimizer(config).slots}
    return TrainState(0, params, slots)
