"""The one entry point of every process of a run: `python -m common.runtime.worker RUN_DIR`.

Who the process is, and where the others are, comes from the environment alone (`RANK`, ..., as torchrun sets them).
"""

import importlib
import importlib.metadata
import os
import platform
import sys
import time
import traceback
from pathlib import Path

from common.config import FRAMEWORKS, RunConfig
from common.errors import ConfigError, SamestepError
from common.runtime import compiling, loop
from common.runtime.records import ProcessRecord, read_config, write_error
from common.runtime.serving import serve
from common.runtime.topology import ProcessSpec, num_devices, who_am_i
from common.runtime.whereabouts import answer_where
from common.strategy import Program, framework_info, strategy_info
from common.workload.table import resolve

LAUNCHED_AT = "SAMESTEP_LAUNCHED_AT"
"""Set by our own launcher to the time of the command. Where it is missing, rank 0 does the launcher's last duties."""
_KEPT: list[Program] = []
"""Programs are never let go: once in some hundred runs the destructors behind a DDP program do not return (torch 2.13). The
process ends without destructors."""


def main(arguments: list[str]) -> int:
    """Does the present process's part of a run.

    Args:
        arguments: The run directory.

    Returns:
        The exit code.
    """
    started = time.time()
    answer_where()
    role = "worker"
    try:
        run = _run_directory(arguments)
        config = read_config(run)
        specs = strategy_info(config.framework, config.strategy).topology(config)
        index = who_am_i(specs, os.environ)
        role = specs[index].role
        launched_at = float(os.environ.get(LAUNCHED_AT, started))
        _work(run, config, specs[index], index, launched_at)
        if LAUNCHED_AT not in os.environ and index == 0:
            from common.runtime.launcher import finish_alone

            finish_alone(run, config)
    except Exception as error:
        if isinstance(error, SamestepError):
            print(f"samestep: {error}", file=sys.stderr)  # its one line says it all
        else:
            traceback.print_exc()
        if arguments and (Path(arguments[0]) / "error.json").exists():
            write_error(Path(arguments[0]), role, error)
        return error.exit_code if isinstance(error, SamestepError) else 1
    return 0


def _run_directory(arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise ConfigError(
            "python -m common.runtime.worker takes one argument: a directory from experiments.run --prepare."
        )
    run = Path(arguments[0])
    if (run / "result.json").exists():
        raise ConfigError(f"{run} holds a finished run; nothing was overwritten: prepare another directory.")
    return run


def _work(run: Path, config: RunConfig, spec: ProcessSpec, index: int, launched_at: float) -> None:
    beat_seconds = min(1.0, config.timeout_seconds / 4)
    record = ProcessRecord(run, spec.role, index, beat_seconds)
    record.enter("start")
    cores = pin(config)
    strategy = importlib.import_module(f"{FRAMEWORKS[config.framework]}.strategies.{config.strategy}")
    workload = resolve(config)
    split = workload.data.load()
    about = {
        "cores": cores,
        "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) + 1,
        "versions": _versions(config),
    }
    if strategy_info(config.framework, config.strategy).compiled_cores(config.options):
        about["startup_seconds"] = time.time() - launched_at
        record.finish({**compiling.run(strategy.compile_step, workload, config, split, record), **about})
        return
    record.enter("build")
    program = strategy.build(workload, config)
    if program is None:
        serve(record, beat_seconds)
    _KEPT.append(program)
    startup_seconds = time.time() - launched_at
    measured = loop.run(program, workload, config, split, record)
    record.finish(
        {
            **measured,
            "startup_seconds": startup_seconds,
            "device_note": program.device_note,
            **about,
        }
    )
    program.close()


def pin(config: RunConfig) -> int:
    """Binds the process to as many cores as the run has threads in all; every process of a run shares them.

    Otherwise a framework may use a second core for one device, and no comparison would hold.

    Returns:
        The number of cores.
    """
    cores = sorted(os.sched_getaffinity(0))[: num_devices(config) * config.threads]
    os.sched_setaffinity(0, cores)
    return len(cores)


def _versions(config: RunConfig) -> dict[str, str]:
    row = strategy_info(config.framework, config.strategy)
    packages = ["samestep", "numpy", framework_info(config.framework).module, *filter(None, [row.package])]
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # used from its source, not installed
    return versions


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # torch and TensorFlow both crash or hang now and then in their own teardown
