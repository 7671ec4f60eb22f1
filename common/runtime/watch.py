"""Watching a run: its progress, its deadlines, its failures; and stopping it so that nothing is left."""

import dataclasses
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.config import RunConfig
from common.errors import ERRORS, WorkerFailed
from common.runtime.records import DONE, read_error
from common.runtime.topology import ProcessSpec
from common.runtime.warm import WarmServer
from common.runtime.whereabouts import CRASH, WHERE, Place, crashed, only_one_elsewhere, place
from common.strategy import framework_info

POLL_SECONDS = 0.05
GRACE_SECONDS = 1.0
"""How long the other processes may still end by themselves once one has failed: the first cause may come second."""
STOP_SECONDS = 2.0
WHERE_SECONDS = 1.0
TEARDOWN_SECONDS = 5.0
"""How long a framework may take to let go once every record is written; both hang there now and then."""
FIRST_STEP_FACTOR = 10
_TOLD_CODES = (0, *sorted({error.exit_code for error in ERRORS.values()}))
"""A worker that ends with another one did not come to writing its error."""

Progress = Callable[[int, list[float], float], None]
"""Called at every window's end with: the step reached, the window's losses, its seconds."""


@dataclasses.dataclass
class Watch:
    """The processes of one run, from the parent's side.

    Attributes:
        run: The run directory.
        config: A checked configuration.
        server: What started the processes.
        processes: Worker number -> its spec.
        progress: Told of every window.
    """

    run: Path
    config: RunConfig
    server: WarmServer
    processes: dict[int, ProcessSpec]
    progress: Progress | None = None
    codes: dict[int, int] = dataclasses.field(default_factory=dict)
    _stopping: bool = False
    _spared: set[int] = dataclasses.field(default_factory=set)
    _released: set[int] = dataclasses.field(default_factory=set)
    _read: int = 0
    _changed: float = dataclasses.field(default_factory=time.time)

    def wait(self) -> None:
        """Returns when every process that does not merely serve has ended well.

        Raises:
            SamestepError: What a worker left in `error.json`; or WorkerFailed for one that died or hung.
        """
        try:
            while not self._finished():
                self._poll()
                self._tail()
                if self._failed():
                    self._drain(GRACE_SECONDS)
                    raise self._failure()
                self._check_deadlines()
            self._tail()
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends every process that still runs: SIGTERM, then SIGKILL. Returns when none is left."""
        self._stopping = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            running = [worker for worker in self.processes if worker not in self.codes]
            if not running:
                return
            for worker in running:
                self.server.signal(worker, number)
            self._drain(STOP_SECONDS)

    def _finished(self) -> bool:
        return all(worker in self.codes for worker, spec in self.processes.items() if not spec.serves)

    def _failed(self) -> list[int]:
        """The processes whose end is the run's, in the order in which they ended."""
        return [worker for worker, code in self.codes.items() if code and worker not in self._spared]

    def _can_spare(self, worker: int) -> bool:
        """Whether the run goes on without a process: it trains already, and another such process is left."""
        left = [w for w, spec in self.processes.items() if spec.expendable and w not in self.codes]
        served = [spec for spec in self.processes.values() if not spec.serves]
        training = any(_life(self.run, spec)[1] not in ("", "start", "build") for spec in served)
        return self.processes[worker].expendable and bool(left) and training and self._failed() == [worker]

    def _poll(self) -> None:
        for answer in self.server.poll(POLL_SECONDS):
            if answer.get("ended") in self.processes:
                worker, code = answer["ended"], 0 if answer["ended"] in self._released else answer["code"]
                self.codes[worker] = code
                if code and not self._stopping and self._can_spare(worker):
                    self._spared.add(worker)
                    spec = self.processes[worker]
                    what = f"{spec.role} {_ending(code)}; the run goes on without it (log: {self.run / spec.role}.log)"
                    print(f"samestep: {what}", file=sys.stderr)

    def _drain(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.codes) < len(self.processes) and time.monotonic() < deadline:
            self._poll()

    def _tail(self) -> None:
        path = self.run / "metrics.jsonl"
        if not path.exists():
            return
        with path.open() as file:
            file.seek(self._read)
            while (line := file.readline()).endswith("\n"):
                self._read = file.tell()
                values = json.loads(line)
                if self.progress is not None:
                    self.progress(values["step"], values["losses"], values["seconds"])

    def _failure(self) -> BaseException:
        failed = self._failed()
        role, left = read_error(self.run) or ("", None)
        if left is not None and not isinstance(left, WorkerFailed):
            return left  # ours: its one line says it all, and no other's death brings it about
        for worker in failed:
            if self.codes[worker] not in _TOLD_CODES:  # it died without a word: the others' complaints are its echo
                return WorkerFailed(self._obituary(worker, _ending(self.codes[worker])))
        worker = next((w for w in failed if self.processes[w].role == role), failed[0])
        ending = _ending(self.codes[worker])
        return WorkerFailed(self._obituary(worker, f"{ending}: {left}" if left is not None else ending))

    def _check_deadlines(self) -> None:
        now = time.time()
        states = {worker: _life(self.run, spec) for worker, spec in self.processes.items()}
        self._release(states, now)
        working = [worker for worker, spec in self.processes.items() if not spec.serves]
        changed = max([self._changed, *(states[worker][0] for worker in working)])  # who serves shows life in any case
        first_step = any(phase == "first step" for _, phase, _ in states.values())
        limit = self.config.timeout_seconds * (FIRST_STEP_FACTOR if first_step else 1)
        if now - changed > limit:
            if all(worker in self.codes for worker in working):
                return  # the last of them has just ended
            silent = [w for w in states if w not in self.codes and now - states[w][0] > limit / 2]
            told = {worker: last_lines(_read(self._log(worker))) for worker in silent}
            places = self._ask_where(silent)
            worker = only_one_elsewhere(places, framework_info(self.config.framework).module)
            if worker is None:
                # One that serves shows every second that it is alive: if it does not, it is what the others wait for.
                worker = min(silent, key=lambda w: (not self.processes[w].serves, states[w][0]))
            what = f"made no progress for {limit:g} s" if states[worker][0] else f"never started within {limit:g} s"
            advice = f"{what}; give more time with --timeout-seconds"
            raise WorkerFailed(self._obituary(worker, advice, places[worker], told[worker]))

    def _release(self, states: Mapping[int, tuple[float, str, int]], now: float) -> None:
        """Ends those that do not leave although all there is to measure has been written."""
        here = [w for w, spec in self.processes.items() if w not in self.codes and not spec.serves]
        patience = min(TEARDOWN_SECONDS, self.config.timeout_seconds / 2)
        idle = all(states[w][1] == DONE and now - states[w][0] > patience for w in here)
        if here and idle and not self._released:
            self._ask_where(here)
            self._released.update(here)
            for worker in here:
                self.server.signal(worker, signal.SIGKILL)

    def _ask_where(self, workers: Sequence[int]) -> dict[int, Place | None]:
        """Has processes write to their logs where they are, every thread's stack."""
        ends = {worker: log.stat().st_size if (log := self._log(worker)).exists() else 0 for worker in workers}
        for worker in workers:
            self.server.signal(worker, WHERE)
        self._drain(WHERE_SECONDS)
        return {worker: place(_read(self._log(worker), end)) for worker, end in ends.items()}

    def _log(self, worker: int) -> Path:
        return self.run / f"{self.processes[worker].role}.log"

    def _obituary(self, worker: int, what: str, at: Place | None = None, said: str | None = None) -> str:
        spec, log = self.processes[worker], self._log(worker)
        text, _, stacks = _read(log).partition(CRASH)
        at = at or crashed(stacks)
        _, phase, step = _life(self.run, spec)
        where = f" (phase: {phase}, step {step}{f', at {at}' if at else ''})" if phase else ""
        return f"{spec.role} {what}{where}; log: {log}.{last_lines(text) if said is None else said}"


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _life(run: Path, spec: ProcessSpec) -> tuple[float, str, int]:
    path = run / f"process-{spec.role}.json"
    try:
        beat = path.stat().st_mtime
        values: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return 0.0, "", 0
    return beat, str(values.get("phase", "")), int(values.get("step", 0))


def _read(log: Path, start: int = 0) -> str:
    try:
        return log.read_bytes()[start:].decode(errors="replace")
    except OSError:
        return ""


def last_lines(text: str, count: int = 3) -> str:
    """The last lines of a log, indented below the message they explain and cut at 300 characters; "" if there are none."""
    return "".join(f"\n    {line[:300]}" for line in text.rstrip().splitlines()[-count:])
