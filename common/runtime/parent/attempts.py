"""Makes the directory of a run and takes the run to its end, in several attempts if requested.

Each attempt continues from the newest checkpoint, which its workers find.
"""

import contextlib
import dataclasses
import datetime
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from samestep.common.errors import ConfigError, WorkerFailed, count
from samestep.common.files.access import check_open
from samestep.common.files.writing import open_directory
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import is_running, open_run, refuse_run, reserve_error, write_config, write_error
from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.runtime.process_file import forget
from samestep.common.runtime.processes import how_to_end
from samestep.common.runtime.topology import LAUNCHED_AT, RESTARTS
from samestep.common.steps.log import METRICS, read_log
from samestep.common.strategy import Run

Begin = Callable[[Run, Launch, Progress | None, dict[str, str]], None]
"""(run, launch, function to call at every window's end, variables) -> None: starts the processes of a run and waits for
them."""
UNWRITABLE = "--out {} cannot be written ({}); name another directory."


class _TriesAll(Exception):
    """Ends an attempt on fewer devices once it has saved enough checkpoints to try all devices again."""


@dataclasses.dataclass
class Attempts:
    """Takes a run to its end. If a process dies or hangs, all processes are started again, as often as requested.

    Attributes:
        directory: The run directory.
        run: The run, on the largest number of devices that it may use.
        launch: How it is started.
        environment: Variables to add to the environment of every process.
        progress: Called at every window's end.
    """

    directory: Path
    run: Run
    launch: Launch
    environment: Mapping[str, str]
    progress: Progress | None = None

    def take(self, launched_at: float, begin: Begin) -> Run:
        """Takes the run to its end.

        Args:
            launched_at: When the first attempt began.
            begin: Starts an attempt.

        Returns:
            The run, on the number of devices with which it ended.

        Raises:
            SamestepError: The last attempt failed, or one failed for a reason that another attempt would not remove.
        """
        now, left, wanted, returns, newest = self.run, self.launch.restarts, 1, False, list[Path]()
        earlier = read_log(self.directory).attempt if os.path.lexists(self.directory / METRICS) else 0
        for number in itertools.count(earlier):
            if self.launch.elastic is not None:
                write_config(self.directory, as_config(now, self.launch))
                newest = self._newest()
            try:
                environment = {**self.environment, RESTARTS: str(number), LAUNCHED_AT: str(launched_at)}
                progress = self.progress if now == self.run else self._until(wanted)
                begin(now, self.launch, progress, environment)
                return now
            except _TriesAll:
                following, why = self.run, f"continues with {count(self.run.num_devices, 'device')} again"
            except WorkerFailed as error:
                if not left:
                    raise
                # A device that is gone for good would otherwise cost a restart after every checkpoint.
                if now == self.run:
                    wanted = 2 * wanted if returns and self._newest() == newest else 1
                left, following = left - 1, self._following(now)
                why = f"{error}\nsamestep: starts again{_spell_fewer(now, following, self.run, wanted)} ({left} more)"
            print(f"samestep: {why}", file=sys.stderr, flush=True)
            begin_again(self.directory)
            for spec in now.strategy.topology(now):
                forget(self.directory, spec.role)
            returns = following == self.run != now
            now, launched_at = following, time.time()
        raise AssertionError("attempts are endless")

    def _following(self, now: Run) -> Run:
        """Returns the run for the next attempt, which an elastic run makes with fewer devices."""
        if self.launch.elastic is None:
            return now
        from samestep.common.runtime.parent.elastic import with_one_less  # here: few runs ask for it

        return with_one_less(now, self.launch)

    def _newest(self) -> list[Path]:
        from samestep.common.runtime.checkpoints.committed import find_folders  # here: most runs save nothing

        return find_folders(self.directory)[:1]

    def _until(self, wanted: int) -> Progress:
        """Returns the progress function of an attempt on fewer devices; it ends the attempt after `wanted` checkpoints."""
        seen = [self._newest()]

        def look(step: int, losses: list[float], seconds: float) -> None:
            if self.progress is not None:
                self.progress(step, losses, seconds)
            if (newest := self._newest()) != seen[-1]:
                seen.append(newest)
            if len(seen) > wanted:
                raise _TriesAll

        return look


def _spell_fewer(now: Run, following: Run, most: Run, wanted: int) -> str:
    """Describes on how many devices an attempt starts, and until when; "" if it starts on as many as allowed."""
    if following == most:
        return ""
    until = f"; all are tried again after {'a checkpoint' if wanted == 1 else f'{wanted} checkpoints'}"
    return f", on {following.num_devices} of {now.num_devices} devices{until}"


def prepare(run: Run, launch: Launch) -> Path:
    """Makes the directory of a run and writes `config.json`.

    Args:
        run: The run.
        launch: Names the directory; by default, a new one below `runs/`.

    Raises:
        ConfigError: The directory already holds a run, or cannot be written.
    """
    if launch.out is None:
        name = f"{run.framework}-{run.strategy.name}-{run.workload.name.partition('+')[0]}"
        path = first_new(lambda: new_directory(name))
    else:
        path = Path(launch.out)
    try:
        refuse_run(path)
        return open_run(path, as_config(run, launch))
    except OSError as error:
        raise ConfigError(UNWRITABLE.format(path, error.strerror)) from None


def first_new(name: Callable[[], Path]) -> Path:
    """Makes a new directory and returns its path.

    Args:
        name: Returns a path that does not exist yet; it is called again if another command creates that path first.

    Raises:
        ConfigError: The directory cannot be made.
    """
    while True:
        path = name()
        try:
            open_directory(path, is_new=True)
            return path
        except OSError as error:
            if not (isinstance(error, FileExistsError) and path.exists()):
                refuse_run(path)  # its message names the obstacle, such as a file in place of a parent folder
                raise ConfigError(UNWRITABLE.format(path, error.strerror)) from None


def new_directory(name: str) -> Path:
    """Returns an unused path below `runs/`, with the time in front of the given name."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path, number = Path("runs") / f"{stamp}-{name}", 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def check_unfinished(directory: Path) -> Path:
    """Returns the directory if it holds an interrupted run, which can be continued.

    Raises:
        ConfigError: The directory holds a finished run, a run that is still going, or no run.
    """
    check_open(directory)
    if os.path.lexists(directory / "result.json"):
        raise ConfigError(f"--resume {directory}: it holds a finished run; --start-from continues from where it ended.")
    if not os.path.lexists(directory / "config.json"):
        raise ConfigError(f"--resume {directory}: it holds no run; name a directory with a config.json.")
    if is_running(directory):  # continuing would remove the files that show its processes are alive
        raise ConfigError(f"--resume {directory}: a process of this run is still there; {how_to_end(directory)}")
    return directory


def begin_again(directory: Path) -> Path:
    """Prepares the directory of an interrupted run for another attempt and returns it.

    Raises:
        ConfigError: The directory was removed or cannot be written.
    """
    from samestep.common.runtime.engines.rendezvous import RENDEZVOUS  # here: most runs end at their first attempt

    try:
        (directory / RENDEZVOUS).unlink(missing_ok=True)
        reserve_error(directory)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written ({error.strerror}); the run cannot continue there.") from None
    return directory


@contextlib.contextmanager
def recorded_end(directory: Path) -> Iterator[None]:
    """Makes a context that records in the run directory which error or interruption ended the run."""
    try:
        yield
    except _TriesAll:  # the run continues
        raise
    except BaseException as error:
        by = f" by {error}" if error.args else ""
        interrupted = WorkerFailed(f"the run in {directory} was interrupted{by}")
        ended = interrupted if isinstance(error, KeyboardInterrupt) else error
        write_error(directory, "parent", ended, first=False)
        raise
