"""One strike: a command is started, struck from outside, and watched to its end; for `tests.chaos.strikes`."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.parent.merge import command
from samestep.common.runtime.process_file import read_life
from samestep.common.runtime.processes import Process, descendants
from tests.chaos.cells import COMMAND, PROCESS_FAULTS, SLACK_SECONDS, processes, request
from tests.chaos.run import ENDLESS, SAYS, _is_told, _shorten, _take_signals

if TYPE_CHECKING:
    from tests.chaos.strikes import Strike

START_SECONDS = 120.0
PATIENCE_SECONDS = 60.0
"""Beyond the timeout: then it hangs."""
MARK = "CHAOS_MARK"
SERVER = {
    "server": "the {framework} fork server",
    "keeper": "the keeper of the {framework} fork server",
    "maker": "the network maker of the {framework} fork server",
}


def strike(drawn: "Strike", scratch: Path) -> dict[str, object]:
    """Strikes a command from outside.

    Args:
        drawn: How.
        scratch: An empty directory.

    Returns:
        The fields of the outcome.

    Raises:
        RuntimeError: The run ended before.
    """
    out, mark = scratch / "run", secrets.token_hex(8)
    config = request(drawn.row, steps=ENDLESS, keep_state=False)
    line = command(as_config(parse(config), launch_of(config))).split()
    with subprocess.Popen(
        [sys.executable, "-m", *line, "--out", str(out)],
        env=os.environ | {"TMPDIR": str(scratch), MARK: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_signals,
    ) as process:
        try:
            if not _wait(drawn, process, out):
                raise RuntimeError(f"the run ended before: {process.communicate(timeout=PATIENCE_SECONDS)[1]}")
            return _strike(drawn, process, config, out, mark)
        finally:
            process.kill()
            for pid in _marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _strike(
    drawn: "Strike", process: "subprocess.Popen[str]", config: RunConfig, out: Path, mark: str
) -> dict[str, object]:
    there = _targets(process.pid, config, out)
    hit, pid = _choose(drawn, there)
    phase = _phase(there, config, out)
    # Where nothing else exists yet, the command is struck, but not stopped: nobody is there to notice.
    fault = "SIGTERM" if hit == COMMAND and drawn.who != COMMAND else drawn.fault
    numbers = [signal.Signals[name] for name in fault.split()]
    began = time.monotonic()
    for place, number in enumerate(numbers):
        time.sleep(drawn.gap_seconds if place else 0.0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    limit, went_on = config.timeout_seconds + SLACK_SECONDS, False
    try:
        process.wait(limit + (0.0 if _may_go_on(drawn, config, hit) else PATIENCE_SECONDS))
    except subprocess.TimeoutExpired:
        went_on = True
        process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=PATIENCE_SECONDS)[1]
    seconds = time.monotonic() - began
    if hit == COMMAND and numbers[0] == signal.SIGKILL:
        while _marked(mark) and time.monotonic() - began < limit + 1:
            time.sleep(0.02)
        seconds = time.monotonic() - began
    deadline = time.monotonic() + 1.0
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    said = _said(stderr)
    is_right, excuse = _judge(hit, numbers, config, process.returncode, said, went_on)
    return {
        "hit": hit,
        "fault": fault,
        "phase": phase,
        "seconds": round(seconds, 3),
        "is_right": is_right,
        "orphans": len(left),
        "said": _shorten("\n".join(said[-1:]), out) + ("" if is_right else f" (exit code {process.returncode})"),
        "excuse": excuse,
        "timeout_seconds": config.timeout_seconds,
    }


# --- when and whom ----------------------------------------------------------------------------------------------------


def _wait(drawn: "Strike", process: "subprocess.Popen[str]", out: Path) -> bool:
    """Waits for the moment; returns whether the command still runs then."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and not _handles_signals(process.pid):
        time.sleep(0.002)
    if drawn.moment == "random":
        time.sleep(drawn.seconds)
        return process.poll() is None
    while process.poll() is None and time.monotonic() < deadline:
        if "train" in drawn.moment and _trains(out):
            time.sleep(drawn.seconds)
            return process.poll() is None
        if drawn.moment == "import" and (server := _members(process.pid).get("server")) and _imports(server.pid):
            return True
        time.sleep(0.01)
    return False


def _trains(out: Path) -> bool:
    return any(
        read_life(out, path.stem.removeprefix("process-")).phase == "train" for path in out.glob("process-*.json")
    )


def _handles_signals(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16)  # pyrefly: ignore
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def _imports(pid: int) -> bool:
    """Whether a process has loaded a library of its framework."""
    try:
        return re.search(r"/(torch|tensorflow)/", Path(f"/proc/{pid}/maps").read_text()) is not None
    except OSError:
        return False


def _members(pid: int) -> dict[str, Process]:
    """The fork server of a command and what is around it; its maker is forked before it."""
    every = descendants([pid])
    keeper = next((each for each in every if each.parent == pid), None)
    if keeper is None:
        return {}
    children = sorted((each for each in every if each.parent == keeper.pid), key=lambda each: (each.started, each.pid))
    return {"keeper": keeper, **dict(zip(("maker", "server"), children, strict=False))}


def _targets(pid: int, config: RunConfig, out: Path) -> dict[str, int]:
    there = {COMMAND: pid, **{role: each.pid for role, each in _members(pid).items()}}
    alive = {each.pid for each in descendants([pid])}
    for spec in parse(config).strategy.topology(parse(config)):
        with contextlib.suppress(OSError, ValueError):
            number = json.loads((out / f"process-{spec.role}.json").read_text())["pid"]
            if number in alive:
                there[spec.role] = number
    return there


def _choose(drawn: "Strike", there: dict[str, int]) -> tuple[str, int]:
    """Whom to strike; where that one is not there yet, the nearest that is."""
    workers = [role for role in there if role not in (COMMAND, *SERVER)]
    role = drawn.who
    if role == "process":
        role = workers[min(int(drawn.pick * len(workers)), len(workers) - 1)] if workers else "server"
    role = next(each for each in (role, "keeper", COMMAND) if each in there)
    return role, there[role]


def _phase(there: Collection[str], config: RunConfig, out: Path) -> str:
    if "server" not in there:
        return "start"
    phases = [
        read_life(out, spec.role).phase for spec in parse(config).strategy.topology(parse(config)) if not spec.serves
    ]
    return next(filter(None, phases), "import")


def _marked(mark: str) -> list[int]:
    """The processes that have a mark in their environment, and have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


# --- what was said ----------------------------------------------------------------------------------------------------


def _said(stderr: str) -> list[str]:
    """What the command said, line by line, each with the lines that are indented below it."""
    return re.findall(r"^samestep: .*(?:\n    .*)*", stderr, re.MULTILINE)


def _may_go_on(drawn: "Strike", config: RunConfig, hit: str) -> bool:
    run = parse(config)
    expendable = {spec.role for spec in processes(drawn.row) if spec.expendable}
    return not run.strategy.synchronous(run.options) and hit in expendable


def _judge(
    hit: str, numbers: list[signal.Signals], config: RunConfig, code: int, said: list[str], went_on: bool
) -> tuple[bool, str]:
    last = said[-1] if said else ""
    if hit == COMMAND and numbers[0] == signal.SIGKILL:
        return code == -signal.SIGKILL, ""
    if hit == COMMAND:
        return _is_told(numbers[0], code, last), ""
    (number,) = numbers
    assert number.name in PROCESS_FAULTS
    names = {
        "role": SERVER.get(hit, re.escape(hit)).format(framework=config.framework),
        "timeout": config.timeout_seconds,
    }
    wanted = SAYS[number.name].format(**names)
    if went_on:
        told = any(re.match(f"samestep: {wanted}", each) and "goes on without it" in each for each in said)
        return told, "asynchronous, and goes on without a dead worker" if told else ""
    return code == 1 and re.match(f"samestep: {wanted}", last) is not None, ""
