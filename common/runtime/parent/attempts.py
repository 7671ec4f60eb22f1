"""The directory of a run, and the attempts at it: each continues from the newest checkpoint, which its workers find."""

import contextlib
import dataclasses
import datetime
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.files.writing import open_directory
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import is_running, open_run, refuse_run, reserve_error, write_config, write_error
from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.runtime.process_file import forget
from samestep.common.runtime.topology import LAUNCHED_AT, RESTARTS
from samestep.common.steps.log import METRICS, read_log
from samestep.common.strategy import Run

Begin = Callable[[Run, Launch, Progress | None, dict[str, str]], None]
"""(run, launch, function to call at every window's end, variables) -> None: starts the processes of a run, and waits for
them."""
UNWRITABLE = "--out {} cannot be written ({}); name another directory."


class _TriesAll(Exception):
    """A run on fewer devices than it may have has saved as many checkpoints as it should before it tries all of them."""


@dataclasses.dataclass
class Attempts:
    """Takes a run to its end; if a process dies or hangs, all are started again, as often as requested.

    Attributes:
        directory: The run directory.
        run: What is trained, on as many devices as it may have.
        launch: How it is started.
        environment: Added to every process's.
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
            The run on as many devices as it ended with.

        Raises:
            SamestepError: The last attempt failed, or one failed in a way that another attempt would repeat.
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
                following, why = self.run, f"continues with {self.run.num_devices} devices again"
            except WorkerFailed as error:
                if not left:
                    raise
                # A device that has gone for good would otherwise cost a restart after every checkpoint.
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
        """Returns the run as the next attempt takes it."""
        if self.launch.elastic is None:
            return now
        from samestep.common.runtime.parent.elastic import with_one_less  # here: few runs ask for it

        return with_one_less(now, self.launch)

    def _newest(self) -> list[Path]:
        from samestep.common.runtime.checkpoints.committed import find_folders  # here: most runs save nothing

        return find_folders(self.directory)[:1]

    def _until(self, wanted: int) -> Progress:
        """Returns what is called at every window's end with fewer devices than there may be: it ends the attempt in time."""
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
    """Says on how many devices an attempt starts, and until when; "" if on as many as the one before and as there may be."""
    if following == most:
        return ""
    until = f"; all are tried again after {'a checkpoint' if wanted == 1 else f'{wanted} checkpoints'}"
    return f", on {following.num_devices} of {now.num_devices} devices{until}"


def prepare(run: Run, launch: Launch) -> Path:
    """Makes the directory of a run and writes `config.json`.

    Args:
        run: The run.
        launch: Names the directory; if it does not, one is made.

    Raises:
        ConfigError: `--out` already holds a run, or cannot be written.
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
    """Makes a new directory.

    Args:
        name: Returns a path that does not exist yet; it is called again if another command creates that path first.

    Raises:
        ConfigError: It cannot be made.
    """
    while True:
        path = name()
        try:
            open_directory(path, is_new=True)
            return path
        except OSError as error:
            if not (isinstance(error, FileExistsError) and path.exists()):
                refuse_run(path)  # which names what is in its way: a file may have the name of a folder above it
                raise ConfigError(UNWRITABLE.format(path, error.strerror)) from None


def new_directory(name: str) -> Path:
    """Returns a path below `runs/` that is not taken yet, with the time in front of its name."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path, number = Path("runs") / f"{stamp}-{name}", 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def check_unfinished(directory: Path) -> Path:
    """Refuses to continue a directory that does not hold a run that was cut off; returns the directory.

    Args:
        directory: The directory.

    Raises:
        ConfigError: It holds a finished run, one that is still running, or none.
    """
    if os.path.lexists(directory / "result.json"):
        raise ConfigError(f"--resume {directory}: it holds a finished run; --start-from continues from where it ended.")
    if not os.path.lexists(directory / "config.json"):
        raise ConfigError(f"--resume {directory}: it holds no run; name a directory with a config.json.")
    if is_running(directory):  # its processes would lose the files by which they are seen to be alive
        raise ConfigError(f"--resume {directory}: a process of this run is still there; wait until it has ended.")
    return directory


def begin_again(directory: Path) -> Path:
    """Makes a run that was cut off ready for another attempt; returns its directory.

    Args:
        directory: The run directory.

    Raises:
        ConfigError: It cannot be written, or somebody removed it.
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
    """Makes a context that records in a run directory what ended it: an interruption, or an error."""
    try:
        yield
    except _TriesAll:  # the run goes on
        raise
    except BaseException as error:
        by = f" by {error}" if error.args else ""
        interrupted = WorkerFailed(f"the run in {directory} was interrupted{by}")
        ended = interrupted if isinstance(error, KeyboardInterrupt) else error
        write_error(directory, "parent", ended, first=False)
        raise
