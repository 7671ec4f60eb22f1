"""One process of a run, from its directory and its environment to what it measured.

Its identity and the others' addresses come from the environment alone (`RANK`, ..., as torchrun sets them).
"""

import contextlib
import dataclasses
import functools
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from samestep.common.errors import ConfigError, SamestepError, WorkerFailed
from samestep.common.files.access import check_open
from samestep.common.files.locks import claim_place
from samestep.common.frameworks import conventions
from samestep.common.program import Program
from samestep.common.request import Launch, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.directory import read_config, read_error, write_error
from samestep.common.runtime.engines.placing import join, take_place
from samestep.common.runtime.engines.rendezvous import address_for_others
from samestep.common.runtime.imports import import_framework
from samestep.common.runtime.process_file import ProcessFile, forget
from samestep.common.runtime.processes import Process
from samestep.common.runtime.stack_dumps import enable_stack_dumps
from samestep.common.runtime.topology import LAUNCHED_AT, LAUNCHER, TIMEOUT
from samestep.common.runtime.worker.compiling import compile_and_measure
from samestep.common.runtime.worker.description_worker import answer, is_asked
from samestep.common.runtime.worker.loop import train_and_measure
from samestep.common.runtime.worker.memory_shortage import is_shortage, shortage
from samestep.common.runtime.worker.step_log import versions_of
from samestep.common.runtime.worker.usage import serve
from samestep.common.strategy import ProcessSpec, Run
from samestep.common.workload import code
from samestep.common.workload.data.dataset import load
from samestep.common.workload.declaration import split_file
from samestep.common.workload.declared import raised_in

_KEPT: list[Program] = []
"""Programs, which are never released: once in some hundred runs the destructors of a DDP program do not return (torch 2.13).
The process ends without destructors."""
Finish = Callable[[Path, Run, Launch], None]
"""(directory, run, launch) -> None: called on rank 0 at the end if no launcher of ours waits for it."""


def main(arguments: list[str], finish: Finish | None = None) -> int:
    """Does the current process's part of a run.

    Args:
        arguments: The run directory.
        finish: Called on rank 0 once its part is done.

    Returns:
        The exit code.
    """
    started = time.time()
    enable_stack_dumps()
    role, run = "worker", None
    try:
        # Only our own launcher asks for descriptions, which import the file that the directory names.
        if finish is None and arguments and is_asked(Path(arguments[0])):
            answer(Path(arguments[0]))
            return 0
        directory = _run_directory(arguments)
        run, launch = read_run(directory)
        _allow_code(run, directory, is_told=finish is not None)
        specs = run.strategy.topology(run)
        index = take_place(specs, os.environ)
        role = specs[index].role
        claim_role(directory, role, index)
        join(directory, specs, index, os.environ, launch.timeout_seconds, versions_of(run))
        _work(directory, run, launch, specs[index], index, float(os.environ.get(LAUNCHED_AT, started)))
        if finish is not None and index == 0:
            finish(directory, run, launch)
    except Exception as raised:
        return _report(raised, arguments, run, role)
    return 0


def _report(raised: Exception, arguments: list[str], run: Run | None, role: str) -> int:
    """Writes and prints what went wrong; returns the exit code."""
    error = raised
    if run is not None and is_shortage(raised):
        traceback.print_exception(raised)  # into the log
        error = shortage(run, role)
    elif (
        run is not None
        and (source := run.workload.model.facts.source)
        and (said := _fault(raised, run, arguments[0], role))
    ):
        traceback.print_exception(raised)
        error = ConfigError(f"--model {source}: {said}")
    is_ours = arguments and (os.path.exists(Path(arguments[0], "config.json")) or is_asked(Path(arguments[0])))
    if is_ours and not _is_orphan():
        write_error(Path(arguments[0]), role, error)
    with contextlib.suppress(OSError):  # the disk of the log is full
        _print_error(error)
    return error.exit_code if isinstance(error, SamestepError) else 1


def _fault(raised: Exception, run: Run, directory: str, role: str) -> str:
    """Returns what a user's model did wrong, or most likely did, according to an error; "" if the error does not show it."""
    faults = conventions(run.framework).faults
    if found := raised_in(raised, run.workload.model.facts.source):
        return found
    log = Path(directory, f"{role}.log")
    where = f"; log: {log}" if log.exists() else ""  # processes started by hand print into their terminals
    return next((f"most likely {said}{where}" for sign, said in faults.items() if sign in str(raised)), "")


def _is_orphan() -> bool:
    """Returns whether our launcher has ended. What fails now is a consequence, and `error.json` says that the run was cut off."""
    pid, _, started = os.environ.get(LAUNCHER, "").partition(" ")
    return bool(pid) and not Process(int(pid), int(started), 0, "", "").is_alive


def claim_role(directory: Path, role: str, index: int) -> None:
    """Claims a role of a run for this process, by a lock on a byte of `config.json` that is held until the process ends.

    Args:
        directory: The run directory.
        role: The role of this process.
        index: The place of this process in the topology.

    Raises:
        WorkerFailed: Another running process has the role.
    """
    try:
        claim_place(os.open(directory / "config.json", os.O_RDWR), index)  # never closed
    except BlockingIOError:
        raise WorkerFailed(
            f"{role} was started twice: another process is {role} of {directory}; start each process once"
        ) from None
    except OSError:
        pass  # a file system without locks, or a file that may not be written


def _print_error(error: Exception) -> None:
    if isinstance(error, SamestepError):
        print(f"samestep: {error}", file=sys.stderr)  # its one line is enough
    else:
        traceback.print_exception(error)


def _run_directory(arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise ConfigError("samestep worker takes one argument: a directory from samestep run --prepare.")
    directory = Path(arguments[0])
    check_open(directory, writes=True)
    if os.path.exists(directory / "result.json"):
        raise ConfigError(f"{directory} holds a finished run; nothing was overwritten: prepare another directory.")
    return directory


def read_run(directory: Path) -> tuple[Run, Launch]:
    """Reads the request of a run directory as strictly as a command line.

    Raises:
        ConfigError: The request is invalid, or not as complete as `--prepare` writes it.
        Unavailable: As for `parse`.
    """
    config = read_config(directory)
    run, launch = parse(config), launch_of(config)
    complete = as_config(run, launch)
    for field in dataclasses.fields(config):
        given, wanted = getattr(config, field.name), getattr(complete, field.name)
        if given != wanted:
            raise ConfigError(
                f"{directory / 'config.json'}: {field.name} is {given!r}, and the run would have {wanted!r}; prepare it again."
            )
    return run, launch


def _allow_code(run: Run, directory: Path, is_told: bool) -> None:
    """Lets the process run the user's file as it was prepared, if there is one.

    Args:
        run: The run.
        directory: The run directory, which names the file.
        is_told: Whether to print the file's name, since nobody gave it on the command line.
    """
    facts = run.workload.model.facts
    if facts.folder is None:
        return
    code.allow_only(facts.folder)
    if is_told:
        source = split_file(facts.source)[0] or "an installed package"
        print(f"samestep: runs code from {source}, which {directory} names", file=sys.stderr, flush=True)


def _work(directory: Path, run: Run, launch: Launch, spec: ProcessSpec, index: int, launched_at: float) -> None:
    os.environ[TIMEOUT] = str(launch.timeout_seconds)  # for strategies that wait for other processes
    beat_seconds = min(1.0, launch.timeout_seconds / 4)
    forget(directory, spec.role)  # an engine has not removed what an earlier attempt left
    file = ProcessFile(directory, spec.role, index, beat_seconds)
    file.enter("start")
    cores = pin(run)
    import_framework(run.framework)
    strategy = importlib.import_module(run.module)
    split = load(run.workload.data)
    program = None
    if run.strategy.compiled_cores(run.options):
        startup_seconds = time.time() - launched_at
        measured = compile_and_measure(strategy.compile_step, run, split, file)
    else:
        file.enter("build")
        program = strategy.build(run)
        if program is None:
            address = address_for_others(directory, [each.role for each in run.strategy.topology(run)], spec.role)
            return serve(file, beat_seconds, functools.partial(_is_over, directory), address)
        _KEPT.append(program)
        startup_seconds = time.time() - launched_at
        measured = train_and_measure(program, run, launch, split, file)
    about = {"startup_seconds": startup_seconds, "cores": cores, "versions": versions_of(run)}
    file.finish(dataclasses.replace(measured, **about))
    if program is not None:
        program.close()


def _is_over(directory: Path) -> bool:
    """Returns whether a run has ended whose serving processes no launcher of ours will end."""
    has_ended = os.path.exists(directory / "result.json") or read_error(directory) is not None
    return LAUNCHED_AT not in os.environ and has_ended


def pin(run: Run) -> int:
    """Binds the process to as many cores as the run has threads in all; every process of a run shares them.

    Otherwise a framework may use a second core for one device, and comparisons would not be valid.

    Returns:
        The number of cores.
    """
    cores = sorted(os.sched_getaffinity(0))[: run.num_devices * run.threads]
    os.sched_setaffinity(0, cores)
    return len(cores)
