"""Runs the command of a record again: perturbed, in float64, or from other weights. What was run is kept beside the record."""

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from samestep.common.errors import ConfigError, SamestepError, Unavailable, WorkerFailed
from samestep.common.files.removing import discard
from samestep.common.files.writing import make_folder
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import rank_files
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.start import record_command, why_nothing

FOLDER = "reruns"
"""In the directory of a record."""
_WEIGHTS = "initial-weights.npz"


class RunCommand(Protocol):
    """Runs a command and records it."""

    def __call__(self, command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
        """Runs a command and records it.

        Args:
            command: Its words.
            options: How it is recorded, and into which directory.
            directory: Where it is started.
            is_quiet: Whether its output is thrown away; else it goes to stderr.

        Raises:
            SamestepError: It failed.
        """
        ...


def run_again(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
    """See `RunCommand`."""
    ended = record_command(command, options, subprocess.DEVNULL if is_quiet else sys.stderr.fileno(), directory)
    if options.stop_after != 0 and (why := why_nothing(Path(options.out), ended)):
        discard(Path(options.out))
        raise WorkerFailed(why) if ended.exit_code else Unavailable(why)
    if ended.exit_code:
        why = ended.notes[0] if ended.notes else f"'{' '.join(command)}' ended with exit code {ended.exit_code}"
        kept = "." if is_quiet else f"; its record as far as it got: {options.out}"
        raise WorkerFailed(f"{why.removesuffix('.')}{kept}")


@dataclasses.dataclass(frozen=True, eq=False)
class Reruns:
    """The reruns of a record.

    Attributes:
        run: What was recorded.
        directory: The directory of the record.
        name: "A" or "B", for what is shown.
        rerun: Runs a command.
        is_quiet: Whether nothing is shown while a command runs.
    """

    run: RecordedRun
    directory: Path
    name: str
    rerun: RunCommand = run_again
    is_quiet: bool = False

    def why_not(self) -> str:
        """Why the command cannot be run again; "" if it can."""
        command = self.run.header.command
        if not command:
            return "the record holds no command"
        if shutil.which(command[0]) is None:
            return f"its command {command[0]} is not there"
        return "" if self._place() else f"its script is neither in {self.run.header.directory} nor here"

    def _place(self) -> Path | None:
        """Returns where the command is started: where it was, or here, if its script is there."""
        scripts = [word for word in self.run.header.command if word.endswith(".py")][:1]
        places = (Path(self.run.header.directory), Path.cwd())
        return next((each for each in places if each.is_dir() and all((each / s).is_file() for s in scripts)), None)

    def perturbed(self, seeds: Sequence[int], num_steps: int) -> list[RecordedRun]:
        """Returns the first steps of the command, from initial weights that are moved in their last bit.

        Args:
            seeds: Each makes a rerun.
            num_steps: How many steps each takes, at least.

        Raises:
            SamestepError: One failed.
        """
        is_float64, products = self.run.header.is_float64, self.run.header.products
        return [
            self._kept(
                f"perturbed-{seed}",
                num_steps,
                RecordOptions("", perturb=seed, products=products, stop_after=num_steps, float64=is_float64),
            )
            for seed in seeds
        ]

    def kept(self) -> list[RecordedRun]:
        """Returns the perturbed reruns that are there already: of each seed the last, which is the longest."""
        by_seed: dict[str, RecordedRun] = {}
        for path in sorted(
            (self.directory / FOLDER).glob("perturbed-*-*"), key=lambda path: (len(path.name), path.name)
        ):
            if found := _read(path, 1):
                by_seed[path.name.split("-")[1]] = found
        return [*by_seed.values()]

    def in_float64(self, num_steps: int) -> RecordedRun:
        """Returns the first steps of the command in float64.

        Args:
            num_steps: How many it takes, at least.
        """
        return self._kept("float64", num_steps, RecordOptions("", stop_after=num_steps, float64=True))

    def started_from(self, weights: Path, num_steps: int) -> RecordedRun:
        """Returns the first steps of the command, from given weights.

        Args:
            weights: The .npz file that holds them.
            num_steps: How many it takes, at least.
        """
        options = RecordOptions("", stop_after=num_steps, weights_from=str(weights), float64=self.run.header.is_float64)
        return self._kept(f"from-{weights.parents[1].name}", num_steps, options)

    def weights(self) -> Path:
        """Returns a .npz file with the initial weights.

        Raises:
            SamestepError: The command did not write it.
        """
        folder = self._folder()
        path = folder / _WEIGHTS
        if not path.exists():
            options = RecordOptions(str(folder / "weights"), weights_to=str(path), stop_after=0)
            self._run(options)
        if not path.exists():
            raise WorkerFailed(
                f"{self.directory}: its command wrote no initial weights; set the same seed in both scripts."
            )
        return path

    def _kept(self, name: str, num_steps: int, options: RecordOptions) -> RecordedRun:
        """Returns a rerun that is there already and is long enough, or a new one."""
        folder, number = self._folder(), 0
        while (directory := folder / f"{name}-{number}").exists():
            if rank_files(directory) and (found := _read(directory, num_steps)):
                return found
            number += 1
        if not self.is_quiet:
            print(f"samestep: {self.name} is run again: {name}, {num_steps} steps ...", file=sys.stderr, flush=True)
        try:
            self._run(dataclasses.replace(options, out=str(directory)))
        except BaseException:  # Ctrl-C as well
            discard(directory)
            raise
        return read_run(directory)

    def _run(self, options: RecordOptions) -> None:
        self.rerun(self.run.header.command, options, self._place() or Path.cwd(), True)

    def _folder(self) -> Path:
        folder = self.directory / FOLDER
        try:
            make_folder(folder, self.directory)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"{folder} cannot be made ({reason}); copy the record to where it can be written."
            ) from None
        return folder


def _read(directory: Path, num_steps: int) -> RecordedRun | None:
    """Returns a rerun; None if it was interrupted, or is too short."""
    try:
        found = read_run(directory)
        return found if count_steps(found, num_steps) >= num_steps else None
    except SamestepError:
        return None


def count_steps(run: RecordedRun, most: int | None = None) -> int:
    """Returns the number of steps that all ranks of a run took.

    Args:
        run: The run; no more of it is read than is needed.
        most: Where to stop counting.
    """
    last = -1
    for step in run.steps:
        last = max(last, step.number)
        if most is not None and last + 1 >= most:
            break
    return last + 1


def record_argument(command: Sequence[str], out: Path, weights: Path | None, is_quiet: bool = False) -> RecordedRun:
    """Records a command that is given in the place of a record.

    Args:
        command: Its words.
        out: The directory of the record.
        weights: A .npz file that it starts from; None leaves its own.
        is_quiet: Whether its output is thrown away; else it goes to stderr.

    Raises:
        SamestepError: It failed.
    """
    options = RecordOptions(str(out), weights_from=None if weights is None else str(weights))
    run_again(command, options, Path.cwd(), is_quiet)
    return read_run(out)
