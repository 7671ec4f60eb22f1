"""The table of faults: what happens to a run when something goes wrong, measured for every row of both catalogues.

`python -m benchmarks.chaos [torch:ddp ... SIGKILL cut_connection ...]` takes the cells of the named rows and faults, or
all. Each good cell leaves a file in `build/faults`, and the next call goes on with the others. At the end, and with
`--page` at once, `docs/faults.md` is written.

Faults strike inside real runs of small models, at a moment that the process itself knows (`chaos_worker.py`). A fault is
detected when the command has stopped everything and says what happened. Needs root, for a small disk and short memory.
"""

import argparse
import contextlib
import dataclasses
import functools
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import chaos_worker
from benchmarks.chaos_page import write_page
from benchmarks.chaos_rooms import memory_group, own_mounts, small_disk
from samestep.common.catalog import catalogue, strategy_info
from samestep.common.errors import SamestepError, Unavailable
from samestep.common.program import TrainState
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.provenance import command
from samestep.common.runtime.state_file import STATE, write_state
from samestep.common.strategy import ProcessSpec, Run
from samestep.common.workload.initial import init
from samestep.experiments.arguments import apply_cell
from tests.processes import all_end, descendants

STORE = Path(__file__).parents[1] / "build" / "faults"
TIMEOUT_SECONDS = 6.0
SLACK_SECONDS = 3.0
"""Within the timeout and so long after it, the user has to know."""
VARIANTS = (
    "torch:rpc_parameter_server+consistency=async",
    "tf:dtensor+clients=2",
    "tf:parameter_server+consistency=async",
)
"""Rows that have other processes, or processes that wait for other things, under an option."""
PROCESS_FAULTS = ("SIGKILL", "SIGSTOP")
"""Of every process, at every moment."""
COMMAND_FAULTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL")
COMMAND, ENDLESS = "command", 10**8
IN_TRAINING = ("cut_connection", "full_disk", "fork_server_killed", "short_memory", "nan_gradient")
BEFORE = ("mismatched_shapes", "corrupted_state", "rank_twice")
SAYS = {
    "SIGKILL": "{role} was killed by SIGKILL",
    "SIGSTOP": "{role} (made no progress for {timeout:g} s; it )?is stopped, as by SIGSTOP",
    "cut_connection": "({roles}) .*([Cc]onnection|[Ss]ocket|Broken pipe|EOF|UNAVAILABLE|UnavailableError)",
    "full_disk": "({roles}) .*No space left on device",
    "fork_server_killed": "the {framework} fork server was killed by SIGKILL",
    "short_memory": r"{role} was killed for want of memory at \d+ MiB",
    "nan_gradient": "the loss of step 5 is nan",
    "mismatched_shapes": ".*(rank [0-9] was given another run|another model|[Ss]hape)",
    "corrupted_state": "--start-from .*: no readable state.npz: .*damaged",
    "rank_twice": "({roles}) .*was started twice",
}
"""What has to be said: patterns that the message must begin with."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One fault in one run.

    Attributes:
        row: A strategy with its options.
        fault: A signal, or a function of `chaos_worker`.
        role: The process that it befalls; the command itself, or a process of the run.
        moment: One of `chaos_worker.MOMENTS`; "" for what is there before anything starts.
    """

    row: str
    fault: str
    role: str
    moment: str

    @property
    def stored(self) -> Path:
        """Where its outcome is kept."""
        return STORE / ("-".join(filter(None, dataclasses.astuple(self))).replace(":", "-").replace(" ", "-") + ".json")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of it.

    Attributes:
        seconds: From the fault to the end of the command; None where nothing is to be detected.
        is_right: Whether the culprit, or the cause, was named; or the run went on where it should.
        orphans: How many processes were left.
        said: What the user read.
        excuse: Why it may take longer, or go on: "asynchronous" or "heartbeat"; "" if there is no excuse.
    """

    seconds: float | None
    is_right: bool
    orphans: int
    said: str
    excuse: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it is as wanted."""
        in_time = self.seconds is None or self.seconds <= TIMEOUT_SECONDS + SLACK_SECONDS or bool(self.excuse)
        return self.is_right and in_time and self.orphans == 0


def rows() -> list[str]:
    """Every row of both catalogues, and the variants."""
    plain = [f"{framework}:{row.name}" for framework, row in catalogue() if framework != "numpy"]
    return [*plain, *VARIANTS]


def request(row: str, **fields: object) -> RunConfig:
    """The run of a row that something befalls."""
    config = apply_cell(row, RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=20, parity=False))
    axes = strategy_info(config.framework, config.strategy).axes
    fields = {"devices": 2 if axes else 1, "timeout_seconds": TIMEOUT_SECONDS, "keep_state": True, **fields}
    return dataclasses.replace(config, **fields)


@functools.cache
def processes(row: str) -> tuple[ProcessSpec, ...]:
    """The processes of a row's run."""
    run = parse(request(row))
    return tuple(run.strategy.topology(run))


def _reads_alone(row: str) -> bool:
    """Whether one process alone decides on shapes: the others serve it, or there are none."""
    return sum(not spec.serves for spec in processes(row)) == 1


def cells(row: str) -> Iterator[Cell]:
    """Every fault of a row."""
    specs = processes(row)
    for spec in specs:
        for fault in PROCESS_FAULTS:
            yield from (Cell(row, fault, spec.role, moment) for moment in chaos_worker.MOMENTS)
    several = len(specs) > 1
    last = [spec.role for spec in specs if not spec.serves][-1]
    for fault in IN_TRAINING:
        if several or fault != "cut_connection":
            yield Cell(row, fault, last if fault in ("cut_connection", "short_memory") else specs[0].role, "train")
    for fault in BEFORE:
        yield Cell(row, fault, last, "")
    for fault in (*COMMAND_FAULTS, "gap"):
        yield Cell(row, fault, COMMAND, "train")


# --- within a run -----------------------------------------------------------------------------------------------------


def take(cell: Cell, launcher: Launcher, scratch: Path) -> Outcome:
    """Lets a fault strike a run.

    Args:
        cell: Which.
        launcher: Its workers are `chaos_worker`'s.
        scratch: An empty directory.
    """
    if cell.role == COMMAND:
        return _strike_command(cell, scratch)
    with contextlib.ExitStack() as stack:
        if cell.fault == "full_disk":
            stack.enter_context(small_disk(scratch))
        fields = {"out": str(scratch / "run")}
        if cell.fault == "corrupted_state" or (cell.fault == "mismatched_shapes" and _reads_alone(cell.row)):
            fields["start_from"] = str(_make_start(cell, scratch / "start"))
        config = request(cell.row, **fields)
        return _run(cell, launcher, config, stack.enter_context(contextlib.redirect_stderr(io.StringIO())))


def _run(cell: Cell, launcher: Launcher, config: RunConfig, stderr: io.StringIO) -> Outcome:
    launcher.warm([config.framework])
    before = descendants()
    server = launcher._servers[config.framework, 1]
    group = memory_group() if cell.fault == "short_memory" else None
    environment = {chaos_worker.FAULT: "" if config.start_from else cell.fault, chaos_worker.ROLE: cell.role}
    environment |= {chaos_worker.MOMENT: cell.moment, chaos_worker.GROUP: str(group)}
    started, went_on = time.monotonic(), False
    try:
        run, launch = parse(config), launch_of(config)
        check_launch(run, launch)
        launcher.run(run, launch, environment=environment)
        said, went_on = stderr.getvalue().removeprefix("samestep: ").strip(), True
    except SamestepError as error:
        said = str(error)
    ended = time.monotonic()
    if group:
        (group / "memory.limit_in_bytes").write_text("-1")
    if went_on and cell.fault == "rank_twice":  # the second one is told
        log = (Path(config.out) / f"{cell.role}.log").read_text().splitlines()
        said = next((line.removeprefix("samestep: ") for line in log if "was started twice" in line), "")
    struck = Path(config.out) / "struck"
    began = float(struck.read_text()) if struck.exists() and struck.stat().st_size else started
    orphans = all_end({*server.pids.values()}, 1.0) | (descendants() - before - _of_servers(launcher))
    is_right, excuse = _judge(cell, run, said, went_on)
    return Outcome(None if went_on else ended - began, is_right, len(orphans), _shorten(said, Path(config.out)), excuse)


def _of_servers(launcher: Launcher) -> set[int]:
    """Fork servers that were started in the place of one that was killed, and what belongs to them."""
    pids = {server._process.pid for server in launcher._servers.values()}
    return pids | {child for pid in pids for child in descendants(pid)}


def _judge(cell: Cell, run: Run, said: str, went_on: bool) -> tuple[bool, str]:
    """Whether what was said is right, and the excuse for what is not as wanted."""
    specs = processes(cell.row)
    is_async = not run.strategy.synchronous(run.options)
    roles = "|".join(spec.role for spec in specs)
    names = {"role": re.escape(cell.role), "roles": roles, "framework": run.framework, "timeout": TIMEOUT_SECONDS}
    is_right = re.match(SAYS[cell.fault].format(**names), said, re.DOTALL) is not None
    if not went_on:
        return is_right, ""
    expendable = next(spec.expendable for spec in specs if spec.role == cell.role)
    if is_async and expendable and cell.fault in PROCESS_FAULTS:
        return is_right and "goes on without it" in said, "asynchronous"
    if cell.fault == "rank_twice":
        return is_right, ""
    return cell.fault == "cut_connection", ""  # gRPC connects anew; the run ends as if nothing had happened


def _shorten(said: str, out: Path) -> str:
    """What the user reads, without the paths of this machine."""
    named = said.replace(str(out), "RUN").replace(str(out.parent / "start"), "START")
    return re.sub(r'"/\S*/((site-packages|python3\.\d+)/)', r'"\1', named)


def _make_start(cell: Cell, directory: Path) -> Path:
    """A state to start from: of another width, or damaged."""
    wide = "digits-mlp+width=16" if cell.fault == "mismatched_shapes" else request(cell.row).workload
    run = parse(request(cell.row, workload=wide))
    directory.mkdir()
    params = init(run.workload.model, run.seed)
    write_state(
        directory, TrainState(1, params, {s: {n: 0 * v for n, v in params.items()} for s in run.optimizer.slots})
    )
    if cell.fault == "corrupted_state":
        data = bytearray((directory / STATE).read_bytes())
        data[len(data) // 2] ^= 1
        (directory / STATE).write_bytes(data)
    return directory


# --- the command itself -----------------------------------------------------------------------------------------------


def _strike_command(cell: Cell, scratch: Path) -> Outcome:
    """Sends the command a signal once it trains; or stops all of its processes for longer than the timeout."""
    out = scratch / "run"
    config = request(cell.row, steps=ENDLESS, keep_state=False)
    line = command(as_config(parse(config), launch_of(config))).split()[1:]
    with subprocess.Popen(
        [sys.executable, *line, "--out", str(out)],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_signals,
    ) as process:
        try:
            _wait_for_steps(process, out, 1)
            everyone = descendants(process.pid)
            gap = _gap(process, everyone, out) if cell.fault == "gap" else None
            number = signal.SIGINT if cell.fault == "gap" else signal.Signals[cell.fault]
            began = time.monotonic()
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
            seconds = time.monotonic() - began
            orphans = len(all_end(everyone, 3.0))
        finally:
            process.kill()
    if gap is not None:
        return Outcome(None, gap == "" and process.returncode == 130, orphans, gap or "nothing: the run goes on")
    said = (
        stderr.strip().splitlines()[-1]
        if number != signal.SIGKILL
        else json.loads((out / "error.json").read_text())["message"]
    )
    scratch_left = [path.name for path in scratch.iterdir() if path.name != "run" and number != signal.SIGKILL]
    return Outcome(
        seconds, _is_told(number, process.returncode, said) and not scratch_left, orphans, _shorten(said, out)
    )


def _take_signals() -> None:
    """Whoever starts us in the background has us ignore some of them, and what we start would ignore them as well."""
    for name in (name for name in COMMAND_FAULTS if name != "SIGKILL"):
        signal.signal(signal.Signals[name], signal.SIG_DFL)


def _is_told(number: signal.Signals, code: int, said: str) -> bool:
    if number == signal.SIGKILL:
        return code == -number and said.endswith("was cut off before it ended")
    how = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    return code == 128 + number and said == f"samestep: {how}; nothing is left running."


def _wait_for_steps(process: subprocess.Popen[str], out: Path, lines: int) -> None:
    deadline = time.monotonic() + 120
    metrics = out / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < lines:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"the run did not start: {process.communicate()[1] if process.poll() is not None else ''}"
            )
        time.sleep(0.05)


def _gap(process: subprocess.Popen[str], everyone: set[int], out: Path) -> str:
    """Stops all processes of a run for longer than its timeout; returns what went wrong, or ""."""
    for number, seconds in ((signal.SIGSTOP, TIMEOUT_SECONDS + 2), (signal.SIGCONT, 1.0)):
        for pid in (*everyone, process.pid):
            with contextlib.suppress(ProcessLookupError):  # some helper of a framework's that was about to end
                os.kill(pid, number)
        time.sleep(seconds)
    before = (out / "metrics.jsonl").stat().st_size
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(TIMEOUT_SECONDS + 2)  # for whoever has lost patience to say so
        return process.communicate()[1].strip() or f"exit code {process.returncode}"
    deadline = time.monotonic() + 60  # on a busy machine a window is long
    while (out / "metrics.jsonl").stat().st_size == before:
        if time.monotonic() > deadline:
            return "it does not go on"
        time.sleep(0.1)
    return ""


# --- all of them ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> None:
    """Takes what is chosen and not good yet, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", help="rows and faults; all, unless given")
    parser.add_argument("--page", action="store_true", help="take nothing, only write docs/faults.md")
    given = parser.parse_args(arguments)
    table = {row: list(cells(row)) for row in rows()}
    chosen_rows = [word for word in given.chosen if word in table] or list(table)
    faults = [word for word in given.chosen if word not in table]
    todo = [cell for row in chosen_rows for cell in table[row] if not faults or cell.fault in faults]
    if not given.page:
        STORE.mkdir(parents=True, exist_ok=True)
        own_mounts()
        memory_group()  # entered before anything is started
        with Launcher(worker="benchmarks.chaos_worker") as launcher:
            for cell in todo:
                _take_and_store(cell, launcher)
    taken = [(cell, read(cell)) for each in table.values() for cell in each if cell.stored.exists()]
    write_page(taken, TIMEOUT_SECONDS, SLACK_SECONDS)


def _take_and_store(cell: Cell, launcher: Launcher) -> None:
    if cell.stored.exists() and read(cell).is_good:
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        try:
            outcome = take(cell, launcher, Path(scratch))
        except Unavailable as error:
            print(f"{cell}: {error}", flush=True)
            return
        except (subprocess.TimeoutExpired, RuntimeError) as error:
            outcome = Outcome(None, False, 0, f"nothing: {error}")
    cell.stored.write_text(json.dumps(dataclasses.asdict(outcome)))
    seconds = "" if outcome.seconds is None else f"{outcome.seconds:.1f} s"
    mark = "" if outcome.is_good else "BAD "
    print(f"{mark}{cell.row} {cell.fault} {cell.role} {cell.moment}: {seconds} {outcome.said[:300]!r}", flush=True)


def read(cell: Cell) -> Outcome:
    """The outcome that a cell left."""
    return Outcome(**json.loads(cell.stored.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
