"""Watches the progress, deadlines and failures of a run, and stops it so that nothing is left running."""

import dataclasses
import errno
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.catalog import framework_info
from samestep.common.errors import ERRORS, WorkerFailed
from samestep.common.runtime.directory import read_error
from samestep.common.runtime.parent.processes.crash_report import crash_report, last_lines, read_log
from samestep.common.runtime.parent.processes.following import Heartbeat, Heartbeats, Progress, StepTail
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.process_file import DONE, EVALUATE, TRAIN, read_life
from samestep.common.strategy import ProcessSpec

if TYPE_CHECKING:
    from samestep.common.runtime.stack_dumps import Frame, Stack

POLL_SECONDS = 0.2
"""How often progress is checked; the end of a process is noticed at once."""
GRACE_SECONDS = 1.0
"""How long to wait for other processes to end once one has failed: the real cause may be reported second."""
STOP_SECONDS = 1.0
"""How long a process may take to obey SIGTERM; TensorFlow's workers catch it and do not end."""
KILL_SECONDS = 10.0
"""How long the system may take to remove a process that was killed; it frees the memory first."""
DUMP_SECONDS = 1.0
TEARDOWN_SECONDS = 5.0
"""How long a framework's teardown may take once every process file is written; both frameworks sometimes hang there."""
FIRST_STEP_FACTOR = 10
_REPORTING_CODES = (0, *sorted({error.exit_code for error in ERRORS.values()}))
"""With any other exit code, the worker died before it could write `error.json`."""


@dataclasses.dataclass
class ProcessWatch:
    """The processes of one run, from the parent's side.

    Attributes:
        directory: The run directory.
        framework: A key of FRAMEWORKS.
        timeout_seconds: How long the run may go without progress.
        server: The server that started the processes.
        processes: Worker number -> its spec.
        progress: The function to call at the end of every window.
        independent: Whether ranks do not wait for each other. Each then has its own deadline.
    """

    directory: Path
    framework: str
    timeout_seconds: float
    server: ForkClient
    processes: dict[int, ProcessSpec]
    progress: Progress | None = None
    independent: bool = False
    codes: dict[int, int] = dataclasses.field(default_factory=dict)
    _stopping: bool = False
    _spared: set[int] = dataclasses.field(default_factory=set)
    _released: set[int] = dataclasses.field(default_factory=set)
    _asked: set[tuple[int, float]] = dataclasses.field(default_factory=set)
    _said: dict[int, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._heartbeats = Heartbeats(self.directory)
        self._module = framework_info(self.framework).module
        self._tail = StepTail(self.directory)

    def wait(self) -> None:
        """Waits until every process except servers has ended successfully.

        Raises:
            SamestepError: The error that a worker left in `error.json`; or WorkerFailed for one that died or hung.
        """
        try:
            while not all(worker in self.codes for worker, spec in self.processes.items() if not spec.serves):
                self._poll()
                self._tail.show(self.progress, self._heartbeats.step)
                if self._failed():
                    self._drain(GRACE_SECONDS)
                    raise self._failure()
                self._check_deadlines()
            self._tail.show(self.progress, self._heartbeats.step)
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends every running process, first by SIGTERM, a stopped one at once by SIGKILL; returns when none is left."""
        self._stopping = True
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            running = [worker for worker in self.processes if worker not in self.codes]
            if not running:
                return
            if not self.server.obeys:  # closing it ends everything that it started
                self.server.close()
                return
            for worker in running:
                self.server.signal_worker(worker, signal.SIGKILL if self.server.is_stopped(worker) else number)
            self._drain(seconds)

    def _failed(self) -> list[int]:
        """Returns the processes whose end makes the run fail, in the order in which they ended."""
        return [w for w, code in self.codes.items() if (code or self._left_early(w)) and w not in self._spared]

    def _left_early(self, worker: int) -> bool:
        """Returns whether a process ended with exit code 0 before its part was done: something in it called `os._exit(0)`."""
        phase = read_life(self.directory, self.processes[worker].role).phase
        return worker not in self._released and self.codes[worker] == 0 and phase != DONE

    def _can_spare(self, worker: int) -> bool:
        """Returns whether the run can go on without a process: training has begun, and another expendable process is left."""
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
                    what = f"{spec.role} {self._ending(worker)}; the run goes on without it (log: {self._log(worker)})"
                    print(f"samestep: {what}", file=sys.stderr)

    def _drain(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self.codes) < len(self.processes) and time.monotonic() < deadline:
            self._poll()

    def _failure(self) -> BaseException:
        if not self.directory.exists():
            return WorkerFailed(f"{self.directory} was removed while the run was at step {self._heartbeats.step}")
        failed = self._failed()
        role, left = read_error(self.directory) or ("", None)
        if left is not None and not isinstance(left, WorkerFailed):
            return left  # our own error: its one line is enough, and no other process caused it
        for worker in failed:
            if self.codes[worker] not in _REPORTING_CODES:  # the errors of the others are consequences
                return WorkerFailed(self._obituary(worker, self._ending(worker)))
        for worker in self.processes:
            if worker not in self.codes and self.server.is_stopped(worker):  # so its peers failed, waiting for it
                return WorkerFailed(self._obituary(worker, "is stopped, as by SIGSTOP"))
        worker = next((w for w in failed if self.processes[w].role == role), failed[0])
        end = self._ending(worker) + (" before its part was done" if self._left_early(worker) else "")
        what = f"{end}: {left}" if left is not None else end
        return WorkerFailed(self._obituary(worker, what, said="" if os.strerror(errno.ENOSPC) in what else None))

    def _check_deadlines(self) -> None:
        heartbeats = self._heartbeats.take({worker: spec.role for worker, spec in self.processes.items()})
        self._release(heartbeats)
        first = next(iter(heartbeats.values())).life
        if self.progress is not None and first.phase == EVALUATE and first.step:
            self.progress(first.step, [], 0.0)
        working = [worker for worker, spec in self.processes.items() if not spec.serves]
        if all(worker in self.codes for worker in working):
            return  # the last of them has just ended
        first_step = any(heartbeat.life.phase == "first step" for heartbeat in heartbeats.values())
        late = [w for w, p in heartbeats.items() if w not in self.codes and p.silent_seconds > self.timeout_seconds / 2]
        stopped = [worker for worker in late if self.server.is_stopped(worker)]  # a stopped process compiles nothing
        limit = self.timeout_seconds * (FIRST_STEP_FACTOR if first_step and not stopped else 1)
        silent = {w: p for w, p in heartbeats.items() if w not in self.codes and p.silent_seconds > limit / 2}
        if min(heartbeats[worker].silent_seconds for worker in working) > limit:  # servers always show life
            raise self._hang(silent, limit, dict.fromkeys(stopped, ()) or self._dump_stacks(list(silent)))
        overdue = [w for w in working if self.independent and w in silent and silent[w].silent_seconds > limit]
        for worker in overdue:
            if (moment := (worker, silent[worker].life.seen)) not in self._asked:
                self._asked.add(moment)
                from samestep.common.runtime.stack_dumps import waits  # here, like those below: most runs do not hang

                stacks = self._dump_stacks([worker])
                if not waits(stacks[worker], self._module):  # at a window's end, a rank may wait for a slow one
                    raise self._hang(silent, limit, stacks)

    def _hang(self, silent: Mapping[int, Heartbeat], limit: float, stacks: "Mapping[int, Stack]") -> WorkerFailed:
        """Returns the error that names the process for which the others wait.

        Args:
            silent: The processes that show no progress.
            limit: For how many seconds they have shown none.
            stacks: The stacks of the processes that may be named.
        """
        from samestep.common.runtime.stack_dumps import sole_straggler

        stopped = [worker for worker in stacks if self.server.is_stopped(worker)]
        worker = stopped[0] if stopped else sole_straggler(stacks, self._module)
        if worker is None:
            # A server shows every second that it is alive, so a silent one is what the others wait for.
            worker = min(
                stacks, key=lambda w: (bool(stacks[w]), not self.processes[w].serves, -silent[w].silent_seconds)
            )
        what = f"made no progress for {limit:g} s" if silent[worker].life.seen else f"never started within {limit:g} s"
        advice = "it is stopped, as by SIGSTOP" if stopped else "give more time with --timeout-seconds"
        at = stacks[worker][0] if stacks[worker] else None
        return WorkerFailed(self._obituary(worker, f"{what}; {advice}", at, self._said.get(worker)))

    def _release(self, heartbeats: Mapping[int, Heartbeat]) -> None:
        """Kills processes that do not end although all of them have written their measurements."""
        here = [w for w, spec in self.processes.items() if w not in self.codes and not spec.serves]
        patience = min(TEARDOWN_SECONDS, self.timeout_seconds / 2)
        idle = all(heartbeats[w].life.phase == DONE and heartbeats[w].silent_seconds > patience for w in here)
        if here and idle and not self._released:
            self._dump_stacks(here)
            self._released.update(here)
            for worker in here:
                self.server.signal_worker(worker, signal.SIGKILL)

    def _dump_stacks(self, workers: Sequence[int]) -> "dict[int, Stack]":
        """Makes processes write the stacks of their threads to their logs; `_said` keeps how the logs ended before."""
        from samestep.common.runtime.stack_dumps import DUMP_SIGNAL, worker_stack

        ends = {worker: log.stat().st_size if (log := self._log(worker)).exists() else 0 for worker in workers}
        self._said |= {worker: last_lines(read_log(self._log(worker))) for worker in workers}
        for worker in workers:
            self.server.signal_worker(worker, DUMP_SIGNAL)
        self._drain(DUMP_SECONDS)
        return {worker: worker_stack(read_log(self._log(worker), end)) for worker, end in ends.items()}

    def _ending(self, worker: int) -> str:
        return self.server.ending(worker, self.codes[worker])

    def _log(self, worker: int) -> Path:
        return self.directory / f"{self.processes[worker].role}.log"

    def _obituary(self, worker: int, what: str, at: "Frame | None" = None, said: str | None = None) -> str:
        return crash_report(self.directory, self.processes[worker].role, what, at, said, self._reached(worker))

    def _reached(self, worker: int) -> int:
        """Returns the furthest step of a rank that trains, to which ranks that wait for each other have come together."""
        lives = {w: read_life(self.directory, spec.role) for w, spec in self.processes.items() if not spec.serves}
        if self.independent or worker not in lives or lives[worker].phase != TRAIN:
            return 0
        return max(self._tail.step, *(life.step for life in lives.values() if life.phase == TRAIN))
