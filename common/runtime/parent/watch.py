"""Watching a run: its progress, its deadlines, its failures; and stopping it so that nothing is left."""

import dataclasses
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from samestep.common.catalog import framework_info
from samestep.common.errors import ERRORS, WorkerFailed
from samestep.common.runtime.directory import read_error
from samestep.common.runtime.parent.fork_client import ForkClient
from samestep.common.runtime.process_file import DONE, Life, read_life
from samestep.common.runtime.stack_dumps import CRASH, DUMP_SIGNAL, Frame, crash_frame, sole_straggler, worker_frame
from samestep.common.strategy import ProcessSpec

POLL_SECONDS = 0.05
GRACE_SECONDS = 1.0
"""How long the other processes may still end once one has failed: the first cause may come second."""
STOP_SECONDS = 2.0
DUMP_SECONDS = 1.0
TEARDOWN_SECONDS = 5.0
"""How long a framework's teardown may take once every process file is written; both hang there now and then."""
FIRST_STEP_FACTOR = 10
_REPORTING_CODES = (0, *sorted({error.exit_code for error in ERRORS.values()}))
"""With any other exit code, the worker died before it could write `error.json`."""

Progress = Callable[[int, list[float], float], None]
"""Called at every window's end with: the step reached, the window's losses, its seconds."""


@dataclasses.dataclass
class Watch:
    """The processes of one run, from the parent's side.

    Attributes:
        directory: The run directory.
        framework: A key of FRAMEWORKS.
        timeout_seconds: How long the run may make no progress.
        server: What started the processes.
        processes: Worker number -> its spec.
        progress: Called at every window's end.
    """

    directory: Path
    framework: str
    timeout_seconds: float
    server: ForkClient
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
                self.server.signal_worker(worker, number)
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
        training = any(read_life(self.directory, spec.role).phase not in ("", "start", "build") for spec in served)
        return self.processes[worker].expendable and bool(left) and training and self._failed() == [worker]

    def _poll(self) -> None:
        for answer in self.server.poll(POLL_SECONDS):
            if answer.get("ended") in self.processes:
                worker, code = answer["ended"], 0 if answer["ended"] in self._released else answer["code"]
                self.codes[worker] = code
                if code and not self._stopping and self._can_spare(worker):
                    self._spared.add(worker)
                    spec = self.processes[worker]
                    what = f"{spec.role} {_ending(code)}; the run goes on without it (log: {self.directory / spec.role}.log)"
                    print(f"samestep: {what}", file=sys.stderr)

    def _drain(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.codes) < len(self.processes) and time.monotonic() < deadline:
            self._poll()

    def _tail(self) -> None:
        path = self.directory / "metrics.jsonl"
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
        role, left = read_error(self.directory) or ("", None)
        if left is not None and not isinstance(left, WorkerFailed):
            return left  # ours: its one line says it all, and no other's death brings it about
        for worker in failed:
            if self.codes[worker] not in _REPORTING_CODES:  # the errors of the others are consequences
                return WorkerFailed(self._obituary(worker, _ending(self.codes[worker])))
        worker = next((w for w in failed if self.processes[w].role == role), failed[0])
        ending = _ending(self.codes[worker])
        return WorkerFailed(self._obituary(worker, f"{ending}: {left}" if left is not None else ending))

    def _check_deadlines(self) -> None:
        now = time.time()
        lives = {worker: read_life(self.directory, spec.role) for worker, spec in self.processes.items()}
        self._release(lives, now)
        working = [worker for worker, spec in self.processes.items() if not spec.serves]
        changed = max([self._changed, *(lives[worker].seen for worker in working)])  # servers show life in any case
        first_step = any(life.phase == "first step" for life in lives.values())
        limit = self.timeout_seconds * (FIRST_STEP_FACTOR if first_step else 1)
        if now - changed > limit:
            if all(worker in self.codes for worker in working):
                return  # the last of them has just ended
            silent = [w for w in lives if w not in self.codes and now - lives[w].seen > limit / 2]
            logged = {worker: last_lines(_read(self._log(worker))) for worker in silent}
            frames = self._dump_stacks(silent)
            worker = sole_straggler(frames, framework_info(self.framework).module)
            if worker is None:
                # A server shows every second that it is alive: a silent one is what the others wait for.
                worker = min(silent, key=lambda w: (not self.processes[w].serves, lives[w].seen))
            what = f"made no progress for {limit:g} s" if lives[worker].seen else f"never started within {limit:g} s"
            advice = f"{what}; give more time with --timeout-seconds"
            raise WorkerFailed(self._obituary(worker, advice, frames[worker], logged[worker]))

    def _release(self, lives: Mapping[int, Life], now: float) -> None:
        """Ends those that do not leave although all there is to measure has been written."""
        here = [w for w, spec in self.processes.items() if w not in self.codes and not spec.serves]
        patience = min(TEARDOWN_SECONDS, self.timeout_seconds / 2)
        idle = all(lives[w].phase == DONE and now - lives[w].seen > patience for w in here)
        if here and idle and not self._released:
            self._dump_stacks(here)
            self._released.update(here)
            for worker in here:
                self.server.signal_worker(worker, signal.SIGKILL)

    def _dump_stacks(self, workers: Sequence[int]) -> dict[int, Frame | None]:
        """Has processes write the stacks of all their threads to their logs."""
        ends = {worker: log.stat().st_size if (log := self._log(worker)).exists() else 0 for worker in workers}
        for worker in workers:
            self.server.signal_worker(worker, DUMP_SIGNAL)
        self._drain(DUMP_SECONDS)
        return {worker: worker_frame(_read(self._log(worker), end)) for worker, end in ends.items()}

    def _log(self, worker: int) -> Path:
        return self.directory / f"{self.processes[worker].role}.log"

    def _obituary(self, worker: int, what: str, at: Frame | None = None, said: str | None = None) -> str:
        spec, log = self.processes[worker], self._log(worker)
        text, _, stacks = _read(log).partition(CRASH)
        at = at or crash_frame(stacks)
        life = read_life(self.directory, spec.role)
        where = f" (phase: {life.phase}, step {life.step}{f', at {at}' if at else ''})" if life.phase else ""
        return f"{spec.role} {what}{where}; log: {log}.{last_lines(text) if said is None else said}"


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _read(log: Path, start: int = 0) -> str:
    try:
        return log.read_bytes()[start:].decode(errors="replace")
    except OSError:
        return ""


def last_lines(text: str, count: int = 3) -> str:
    """The last lines of a log, indented below the message they explain and cut at 300 characters; "" if there are none."""
    return "".join(f"\n    {line[:300]}" for line in text.rstrip().splitlines()[-count:])
