"""Trains one workload under one strategy: `samestep run --framework tf --strategy mirrored`."""

import argparse
import contextlib
import dataclasses
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError, SamestepError, Unavailable, WorkerFailed, count
from samestep.common.features.used import spell_switched
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.strategy import ProcessSpec, Run
from samestep.experiments.cli.command_line import TargetAction, open_engine, parse_run
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.command_lines import again
from samestep.experiments.printing.text import fill

if TYPE_CHECKING:
    from samestep.common.runtime.parent.launcher import Launcher
    from samestep.common.runtime.records import RunResult
    from samestep.experiments.submitting.targets import Target

_FOR = "with --prepare: write the script that starts it there, as in slurm:nodes=2 (mpi, torchrun, ray, k8s, trainjob, skypilot)"
_ON = "start the run there, as in slurm:nodes=2 (mpi, torchrun, ray)"


def main(arguments: Sequence[str]) -> int:
    """Checks, runs, prints; returns the exit code.

    Raises:
        SamestepError: The request is wrong, the run failed, or it was not the same step.
    """
    launched_at = time.time()
    first = _first_parser()
    given, rest = first.parse_known_args(arguments)
    written_for, started_on, resumed = (vars(given).get(name) for name in ("written_for", "started_on", "resumed"))
    if resumed is not None and (rest or written_for):
        raise ConfigError("--resume takes the directory of a run, and nothing else: samestep run --resume DIR.")
    asked = parse_run(rest, first.prog, [first]) if resumed is None else _unfinished(resumed)
    from samestep.common.run import parse  # here, like the next ones: --help imports no NumPy
    from samestep.common.runtime.parent.attempts import prepare
    from samestep.common.runtime.parent.check import check_launch
    from samestep.common.runtime.parent.judging.finishing import raise_if_missed
    from samestep.common.runtime.parent.launcher import Launcher
    from samestep.experiments.printing.progress import show_progress

    with Launcher(executor=open_engine(started_on) if started_on else None) as launcher:
        config = launcher.describe(asked) if resumed is None else asked
        run, launch = parse(config), launch_of(config)
        if started_on and launch.prepare:
            raise ConfigError(f"--on {started_on.engine} starts the run; leave out --prepare, or write --for instead.")
        if written_for and not launch.prepare:
            raise ConfigError(f"--for {written_for.engine} writes what starts a prepared run there; add --prepare.")
        if started_on:
            from samestep.experiments.submitting.targets import check_nodes  # here: few runs are started elsewhere

            check_nodes(started_on, run)
        note = check_launch(run, dataclasses.replace(launch, out=None) if resumed else launch, not started_on)
        print("\n".join(map(fill, filter(None, (describe(run, launch), note)))), flush=True)
        if launch.prepare:
            print(script_lines(written_for, run, launch) if written_for else starting_lines(run, prepare(run, launch)))
            return 0
        if resumed:
            say_left_out(resumed)
        with _continuable(launcher, started_on), show_progress(run, run.name) as progress:
            result = launcher.run(run, launch, progress, launched_at, resume=resumed)
        directory = launcher.last_run
    traced = recorded(directory) if directory and launch.traces else ""
    repeat = again(f"{result.command} --on {started_on}" if started_on else result.command)
    print(f"\n{_describe_result(run, result)}Run: {directory}{traced}\n{repeat}", flush=True)
    raise_if_missed(result)
    return 1 if result.saves.failed else 0


def _first_parser() -> Parser:
    """Returns the parser of the flags outside of a request: where to start a run, and which run to continue."""
    parser = Parser(prog="samestep run", add_help=False)
    parser.argument_default = argparse.SUPPRESS
    parser.add_argument("--for", dest="written_for", action=TargetAction, metavar="ENGINE", help=_FOR)
    parser.add_argument("--on", dest="started_on", action=TargetAction, metavar="ENGINE", help=_ON)
    parser.add_argument("--resume", dest="resumed", type=Path, metavar="DIR", help="continue a run that was cut off")
    return parser


@contextlib.contextmanager
def _continuable(launcher: "Launcher", target: "Target | None") -> Iterator[None]:
    """Makes a context that adds to what cuts a run off the line that continues it.

    Args:
        launcher: What starts the run.
        target: The engine that it starts it on; None for this machine.
    """
    try:
        yield
    except (KeyboardInterrupt, SamestepError) as end:
        from samestep.common.runtime.checkpoints.committed import find_folders  # here, like those of `main`

        if (directory := launcher.last_run) is None or (directory / "result.json").exists():
            raise
        line = shlex.join(["samestep", "run", "--resume", str(directory), *(["--on", str(target)] if target else [])])
        if isinstance(end, KeyboardInterrupt | WorkerFailed):
            if find_folders(directory):
                end.add_note(f"continue with: {line}")
        elif target and isinstance(end, ConfigError | Unavailable) and not [*directory.glob("*.log")]:
            end.add_note(f"the run in {directory} was not started; once that is put right: {line}")
        raise


def say_left_out(directory: Path) -> None:
    """Prints which checkpoints are damaged among those that are newer than the one from which the run continues."""
    from samestep.common.runtime.checkpoints.committed import Damaged, find_checkpoints  # here, like those of `main`

    for each in find_checkpoints(directory):
        if not isinstance(each, Damaged):
            break
        print(f"samestep: {each.path} is left out: {each.reason}", file=sys.stderr, flush=True)


def _unfinished(directory: Path) -> RunConfig:
    """Returns the request of a run that was cut off, as it was first made."""
    from samestep.common.runtime.directory import read_config
    from samestep.common.runtime.parent.attempts import check_unfinished
    from samestep.common.runtime.parent.elastic import whole

    return whole(read_config(check_unfinished(directory)))


def _describe_result(run: Run, result: "RunResult") -> str:
    """Returns what a run measured, what its cost model predicts, and what it saved."""
    from samestep.experiments.printing.ledger_table import ledger_of_run  # here, like those of `main`
    from samestep.experiments.printing.tables import report

    ledger = "" if result.compiled else f"{ledger_of_run(run, result)}\n\n"
    return f"{report(result)}\n\n{ledger}{saved(result)}"


def saved(result: "RunResult") -> str:
    """Returns the digest of a run's final state, what it saved, and what it continued from, one line for each; "" if nothing."""
    saves, lines = result.saves, []
    if result.resumed_at is not None or result.lost_steps:
        begun = result.first_step if result.resumed_at is None else result.resumed_at
        lines += [f"Resumed: at step {begun}; {count(result.lost_steps, 'step')} repeated"]
    if saves.stall_seconds:
        import statistics  # here: few runs save anything

        waited = f"{1000 * statistics.median(saves.stall_seconds):.1f} ms (median)"
        skipped = f", {saves.skipped} skipped" if saves.skipped else ""
        lines.append(f"Saved: {count(len(saves.steps), 'checkpoint')}; training waited {waited} for each{skipped}")
    lines += [f"Not saved: {each}" for each in saves.failed]
    lines += [f"Bits: sha256 {result.state_sha256}"] if result.state_sha256 else []
    return "".join(f"{line}\n" for line in lines)


def recorded(directory: Path) -> str:
    """Returns the files with the traced steps of a run, one line for each; "" if there are none."""
    from samestep.experiments.printing.trace_file import TRACE, load_trace  # here, like those of `main`

    if (trace := load_trace(directory)) is None:
        return ""
    flight, hidden = (microseconds / 1000 for microseconds in trace.overlap())
    overlap = f" ({hidden:.1f} of {flight:.1f} ms of transfers overlapped a backward pass)" if flight else ""
    profiles = sorted(directory.glob("profile-*"))
    return f"\nTrace: {directory / TRACE}{overlap}" + "".join(f"\nProfile: {file}" for file in profiles)


def describe(run: Run, launch: Launch) -> str:
    """Returns what is about to run, in one line.

    Args:
        run: What is about to run.
        launch: How it is started.
    """
    from samestep.common.workload.table import title  # here, like those of `main`

    mesh, trained = run.mesh, title(run.workload.name, launch.data)
    shards = mesh.replicas
    batch = f"global batch {run.batch_size} = {shards} x {run.batch_size // shards}"
    devices = count(run.num_devices, "device") + (f" ({mesh})" if "," in str(mesh) else "")
    rate = f"{run.optimizer.name} at rate {run.optimizer.learning_rate:g}"
    off = f", {layers}" if (layers := spell_switched(run)) else ""
    does, steps = "trains", count(run.steps, "step")
    if run.strategy.compiled_cores(run.options):
        does, steps = "compiles", "one step"
    if launch.start_from is not None:
        steps += f" in all, from where {launch.start_from} ends"
    return f"{run.name} {does} {trained} on {devices}: {batch}, {steps}, {rate}, {run.dtype}, seed {run.seed}{off}"


def script_lines(target: "Target", run: Run, launch: Launch) -> str:
    """Prepares a run with the script that starts it under an engine; returns the command that submits it, and the script.

    Args:
        target: The engine.
        run: What to prepare.
        launch: Names the directory.
    """
    from samestep.common.runtime.parent.attempts import prepare  # here, like those of `main`
    from samestep.experiments.submitting.targets import render, write_script

    render(target, run, Path("run"))  # what is refused leaves no directory
    directory = prepare(run, launch)
    script = write_script(target, run, directory)
    hand_over = target.script.start.replace("FILE", shlex.quote(str(script)))
    return f"Prepared {directory}. Start it with: {hand_over}\n\n{render(target, run, directory)}"


def starting_lines(run: Run, directory: Path) -> str:
    """Returns the lines that start a prepared run without our launcher.

    Args:
        run: What was prepared.
        directory: The run directory.
    """
    specs = run.strategy.topology(run)
    worker = f"samestep worker {shlex.quote(str(directory))}"
    how = f"Start it in one of these ways; the process with rank 0 writes {directory}/result.json."
    lines = [f"Prepared {directory}. {how}"]
    if "RANK" in specs[0].environment:
        lines += ["", "torchrun:", f"  torchrun --standalone --nproc-per-node {len(specs)} --no-python {worker}"]
    lines += ["", "by hand, one line per process" + (" (fill in your own host and port):" if len(specs) > 1 else ":")]
    lines += [f"  {_by_hand(spec)}{worker}" for spec in specs]
    return "\n".join(lines)


def _by_hand(spec: ProcessSpec) -> str:
    values = (f"{name}='{value}'" for name, value in spec.environment.items())
    # `${host0}` becomes a placeholder for the user to replace: HOST, HOST1, HOST2, ...
    text = "".join(f"{value} " for value in values)
    return re.sub(r"\$\{([a-z]+)0?(\d*)\}", lambda found: found[1].upper() + found[2], text)


if __name__ == "__main__":
    run_command(main)
