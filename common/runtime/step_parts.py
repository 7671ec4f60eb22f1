"""How the seconds of a measured step are spent: parts that add up to it, for every strategy and without a trace.

A few more steps are taken after all measurements. How long a thread was on a core, and how long it was ready without one, is in
the kernel's accounts of that thread; for the rest of the step it was blocked.

References:
    proc_pid_schedstat(5): nanoseconds on a core, nanoseconds ready to run without one, and slices.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from samestep.common.flags import FieldValues

_TASKS = Path("/proc/self/task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepParts:
    """The parts of a step, in seconds, which add up to the step. For a run, they are scaled to its median timed step.

    Attributes:
        computing_seconds: A device of the process computed: an operator ran, in a pass or anywhere else but in the update.
        update_seconds: An operator of the update ran; None if these cannot be told apart and count as `computing_seconds`.
        waiting_seconds: Blocked in a run of several processes: for an exchange, or for a process that is behind.
        idle_seconds: Ready, but without a core; or, in a run of one process, blocked.
        python_seconds: On a core, but not in an operator: Python, and the framework's own bookkeeping. It is 0 if Python cannot
            be told apart from what it computes.
        steps: The number of steps over which this is a mean.
        own_step_seconds: How long one of these steps took, before any scaling.
    """

    computing_seconds: float
    update_seconds: float | None
    waiting_seconds: float
    idle_seconds: float
    python_seconds: float
    steps: int
    own_step_seconds: float


PARTS = tuple(field.name for field in dataclasses.fields(StepParts) if field.name not in ("steps", "own_step_seconds"))
"""The names of the parts, in the order in which they are shown."""


def mean(of_processes: Sequence[StepParts | None], step_seconds: float | None) -> StepParts | None:
    """Returns the mean over processes, scaled to a step; None unless every process found the parts of its steps.

    Args:
        of_processes: The parts of at least one process; the update is told apart in all of them or in none.
        step_seconds: The seconds to which the parts add up; None if no step was timed.
    """
    found = [each for each in of_processes if each]
    if not step_seconds or len(found) < len(of_processes):
        return None
    columns = {name: [getattr(each, name) for each in found] for name in (*PARTS, "own_step_seconds")}
    means: FieldValues = {n: None if None in values else sum(values) / len(found) for n, values in columns.items()}
    factor = step_seconds / sum(means[name] or 0.0 for name in PARTS)
    scaled = {name: value and value * factor for name, value in means.items() if name in PARTS}
    return StepParts(**means | scaled, steps=found[0].steps)


@dataclasses.dataclass(frozen=True)
class AccountedSteps:
    """Consecutive steps, with the kernel's accounts of the threads.

    Attributes:
        start_ns: The start of the first, as `time.time_ns()`.
        end_ns: The end of the last.
        steps: The number of steps.
        accounts: Thread id -> its account over these steps; the thread that took the steps is first.
        waits: Whether the run has other processes, for which a blocked one waits.
        devices: How many devices this process drives, times the threads of each.
    """

    start_ns: int
    end_ns: int
    steps: int
    accounts: dict[int, "Thread"]
    waits: bool
    devices: int

    @property
    def seconds(self) -> float:
        """The seconds of one step."""
        return (self.end_ns - self.start_ns) / 1e9 / self.steps

    def parts(self, computing: float, update: float | None, python: float, ready: float) -> StepParts:
        """Makes the parts of a step. The rest of the step is blocked, and no part is larger than what the parts before it leave.

        Args:
            computing: The seconds in which operators ran, per step like all the others.
            update: The seconds of the update; None if they are part of `computing`.
            python: The seconds on a core outside of operators.
            ready: The seconds in which threads were ready but had no core.
        """
        left, taken = self.seconds, []
        for each in (computing, update or 0.0, python, ready):
            taken.append(min(max(0.0, each), left))
            left -= taken[-1]
        return StepParts(
            computing_seconds=taken[0],
            update_seconds=None if update is None else taken[1],
            waiting_seconds=left if self.waits else 0.0,
            idle_seconds=taken[3] + (0.0 if self.waits else left),
            python_seconds=taken[2],
            steps=self.steps,
            own_step_seconds=self.seconds,
        )

    def parts_by_operators(
        self, ran: float, updating: float | None, taking: float, numbers: Collection[int]
    ) -> StepParts:
        """Makes the parts from the times at which operators ran.

        The time of an operator includes that in which its thread has no core. The kernel's accounts show the share of that
        time, which is subtracted from all operators alike.

        Args:
            ran: The seconds of a step in which any operator ran.
            updating: The seconds in which an operator of the update ran; None if these cannot be told apart.
            taking: The seconds in which the thread that takes the steps was in an operator.
            numbers: The ids of the threads on which operators ran.
        """
        first = next(iter(self.accounts))
        those = [each for number, each in self.accounts.items() if number in numbers or number == first]
        on_core, ready = sum(each.on_core_ns for each in those), sum(each.ready_ns for each in those)
        share = on_core / (on_core + ready or 1)
        python = max(0.0, self.accounts[first].on_core_ns / 1e9 / self.steps - share * taking)
        without = (1 - share) * (ran + python / (share or 1))
        update = None if updating is None else share * updating
        return self.parts(share * (ran - (updating or 0.0)), update, python, without)

    def parts_by_threads(self, computes: str = "") -> StepParts:
        """Makes the parts from the core time of threads only.

        Args:
            computes: The prefix of the names of threads that run operators; by default the thread that takes the steps does.
        """
        taking, *others = self.accounts.values()
        pool = [each for each in others if computes and each.name.startswith(computes)]
        per_step, per_device = 1e-9 / self.steps, 1e-9 / self.steps / self.devices
        python, on = taking.on_core_ns * per_step, sum(each.on_core_ns for each in pool) * per_device
        ready = taking.ready_ns * per_step + sum(each.ready_ns for each in pool) * per_device
        return self.parts(on, None, python, ready) if computes else self.parts(python, None, 0.0, ready)


@dataclasses.dataclass(frozen=True)
class Thread:
    """The kernel's account of a thread.

    Attributes:
        name: Its name, as its framework or the kernel calls it.
        on_core_ns: Nanoseconds on a core.
        ready_ns: Nanoseconds in which it was ready to run, without a core.
    """

    name: str
    on_core_ns: int
    ready_ns: int


SplitSteps = Callable[[Callable[[], AccountedSteps]], StepParts]
"""Takes steps and finds their parts: `profiling.step_parts` of each mirror."""


def read_threads(tasks: Path = _TASKS) -> dict[int, Thread]:
    """Reads the kernel's accounts of this process's threads, the main one first; if there are none, the time of that one only.

    Args:
        tasks: The kernel's folder of these threads.
    """
    found = {}
    for number in sorted(map(int, os.listdir(tasks)), key=lambda number: (number != os.getpid(), number)):
        try:
            on_core, ready, *_ = map(int, (tasks / str(number) / "schedstat").read_text().split())
            found[number] = Thread((tasks / str(number) / "comm").read_text().strip(), on_core, ready)
        except (OSError, ValueError):  # it has just ended, or this kernel keeps no such accounts
            continue
    return found or {os.getpid(): Thread("", time.thread_time_ns(), 0)}


def used(before: dict[int, Thread], after: dict[int, Thread]) -> dict[int, Thread]:
    """Returns the accounts of threads between two readings.

    Args:
        before: The first reading.
        after: The second reading; a thread that is only in this one began in between.
    """
    nothing = Thread("", 0, 0)
    return {
        number: Thread(
            now.name,
            now.on_core_ns - before.get(number, nothing).on_core_ns,
            now.ready_ns - before.get(number, nothing).ready_ns,
        )
        for number, now in after.items()
    }
