"""Runs to which something happens: within them, or to the command that started them."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from samestep.common.errors import SamestepError
from samestep.common.program import TrainState
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.merge import command
from samestep.common.runtime.state_file import STATE, write_state
from samestep.common.strategy import Run
from samestep.common.workload.initial import init
from samestep.common.workload.table import resize
from tests.chaos import worker
from tests.chaos.cells import (
    COMMAND,
    COMMAND_FAULTS,
    PROCESS_FAULTS,
    Cell,
    Outcome,
    processes,
    reads_alone,
    request,
)
from tests.chaos.rooms import memory_group, small_disk
from tests.processes import all_end, descendants

ENDLESS = 10**8
"""Steps of a run that somebody has to end."""
SAYS = {
    "SIGKILL": "{role} was killed by SIGKILL",
    "SIGSTOP": "{role} (made no progress for {timeout:g} s; it )?is stopped, as by SIGSTOP",
    "cut_connection": "({roles}) .*([Cc]onnection|[Ss]ocket|Broken pipe|EOF|UNAVAILABLE|UnavailableError)",
    "full_disk": "({roles}) .*No space left on device",
    "fork_server_killed": "the {framework} fork server was killed by SIGKILL",
    "short_memory": r"{role} was killed for lack of memory at \d+ MiB",
    "nan_gradient": "the loss of step 5 is nan",
    "mismatched_shapes": ".*(rank [0-9] was given another run|another model|[Ss]hape)",
    "corrupted_state": "--start-from .*: no readable state.npz: .*damaged",
    "rank_twice": "({roles}) .*was started twice",
}
"""What has to be said: patterns that the message must begin with."""


# --- within a run -----------------------------------------------------------------------------------------------------


def take(cell: Cell, launcher: Launcher, scratch: Path) -> Outcome:
    """Lets a fault strike a run.

    Args:
        cell: Which.
        launcher: Its workers are `worker`'s.
        scratch: An empty directory.
    """
    if cell.role == COMMAND:
        return _strike_command(cell, scratch)
    with contextlib.ExitStack() as stack:
        if cell.fault == "full_disk":
            stack.enter_context(small_disk(scratch))
        fields = {"out": str(scratch / "run"), "parity": cell.fault == "cut_connection"}  # which may do no harm
        if cell.fault == "corrupted_state" or (cell.fault == "mismatched_shapes" and reads_alone(cell.row)):
            fields["start_from"] = str(_make_start(cell, scratch / "start"))
        config = request(cell.row, **fields)
        return _run(cell, launcher, config, stack.enter_context(contextlib.redirect_stderr(io.StringIO())))


def _run(cell: Cell, launcher: Launcher, config: RunConfig, stderr: io.StringIO) -> Outcome:
    launcher.warm([config.framework])
    before = descendants()
    server = launcher._servers[config.framework, 1, ""]
    earlier = set(server.pids)  # whose processes are gone, and whose pids others may have by now
    group = memory_group() if cell.fault == "short_memory" else None
    environment = {worker.FAULT: "" if config.start_from else cell.fault, worker.ROLE: cell.role}
    environment |= {worker.MOMENT: cell.moment, worker.GROUP: str(group)}
    started, went_on = time.monotonic(), False
    try:
        run, launch = parse(config), launch_of(config)
        check_launch(run, launch)
        went_on = launcher.run(run, launch, environment=environment).parity.passed is not False
        said = stderr.getvalue().removeprefix("samestep: ").strip() or "nothing"
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
    orphans = all_end({pid for number, pid in server.pids.items() if number not in earlier}, 1.0) | (
        descendants() - before - _of_servers(launcher)
    )
    is_right, excuse = _judge(cell, run, said, went_on)
    seconds, told = None if went_on else ended - began, _shorten(said, Path(config.out))
    return Outcome(seconds, is_right, len(orphans), told, excuse, config.timeout_seconds)


def _of_servers(launcher: Launcher) -> set[int]:
    """Fork servers that were started in the place of one that was killed, and what belongs to them."""
    pids = {server._process.pid for server in launcher._servers.values()}
    return pids | {child for pid in pids for child in descendants(pid)}


def _judge(cell: Cell, run: Run, said: str, went_on: bool) -> tuple[bool, str]:
    """Whether what was said is right, and the excuse for what is not as wanted."""
    specs = processes(cell.row)
    is_async = not run.strategy.synchronous(run.options)
    roles = "|".join(spec.role for spec in specs)
    names = {
        "role": re.escape(cell.role),
        "roles": roles,
        "framework": run.framework,
        "timeout": request(cell.row).timeout_seconds,
    }
    is_right = re.match(SAYS[cell.fault].format(**names), said, re.DOTALL) is not None
    if not went_on:
        return is_right, ""
    expendable = next(spec.expendable for spec in specs if spec.role == cell.role)
    if is_async and expendable and cell.fault in PROCESS_FAULTS:
        return is_right and "goes on without it" in said, "asynchronous, and goes on without a dead worker"
    if cell.fault == "rank_twice":
        return is_right, ""
    return (
        cell.fault == "cut_connection" and run.strategy.backend == "grpc",
        "goes on as gRPC connects anew, and takes the same steps",
    )


def _shorten(said: str, out: Path) -> str:
    """What the user reads, without the paths of this machine."""
    named = said.replace(str(out), "RUN").replace(str(out.parent / "start"), "START")
    return re.sub(r'"/\S*/((site-packages|python3\.\d+)/)', r'"\1', named)


def _make_start(cell: Cell, directory: Path) -> Path:
    """A state to start from: of another width, or damaged."""
    workload = request(cell.row).workload
    if cell.fault == "mismatched_shapes":
        workload = resize(workload, worker.OTHER_WIDTH)
    run = parse(request(cell.row, workload=workload))
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
    line = command(as_config(parse(config), launch_of(config))).split()
    with subprocess.Popen(
        [sys.executable, "-m", *line, "--out", str(out)],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_signals,
    ) as process:
        try:
            _wait_for_steps(process, out, 1)
            everyone = descendants(process.pid)
            gap = _gap(process, everyone, out, config.timeout_seconds) if cell.fault == "gap" else None
            number = signal.SIGINT if cell.fault == "gap" else signal.Signals[cell.fault]
            began = time.monotonic()
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
            seconds = time.monotonic() - began
            orphans = len(all_end(everyone, 3.0))
        finally:
            process.kill()
    if gap is not None:
        beats = config.framework == "tf" and len(processes(cell.row)) > 1 and "ended with exit code 1" in gap
        excuse = "ends after the gap, by TensorFlow's heartbeat of 7.6 s" if beats else ""
        is_right = beats or (gap == "" and process.returncode == 130)
        return Outcome(None, is_right, orphans, _shorten(gap, out) or "nothing: the run goes on", excuse)
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


def _gap(process: subprocess.Popen[str], everyone: set[int], out: Path, timeout_seconds: float) -> str:
    """Stops all processes of a run for longer than its timeout; returns what went wrong, or ""."""
    for number, seconds in ((signal.SIGSTOP, timeout_seconds + 2), (signal.SIGCONT, 1.0)):
        for pid in (*everyone, process.pid):
            with contextlib.suppress(ProcessLookupError):  # some helper of a framework's that was about to end
                os.kill(pid, number)
        time.sleep(seconds)
    before = (out / "metrics.jsonl").stat().st_size
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_seconds + 2)  # for whoever has lost patience to say so
        return process.communicate()[1].strip() or f"exit code {process.returncode}"
    deadline = time.monotonic() + 60  # on a busy machine a window is long
    while (out / "metrics.jsonl").stat().st_size == before:
        if time.monotonic() > deadline:
            return "it does not go on"
        time.sleep(0.1)
    return ""
