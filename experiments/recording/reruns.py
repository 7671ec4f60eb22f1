"""Runs the command of a record again: perturbed, in float64, or from other weights. What was run is kept beside the record.

Before anything else, the command is run again as it was: a script that was edited since takes other steps, of which its reruns
would hide the difference.
"""

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, SamestepError, Unavailable, WorkerFailed
from samestep.common.files.removing import discard
from samestep.common.files.writing import make_folder
from samestep.common.judging.recorded.repeating import find_change
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import rank_files
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.commands import RunCommand, run_again

FOLDER = "reruns"
"""In the directory of a record."""
SEEDS = range(4)
"""Of the perturbed reruns that every judgement has."""
_WEIGHTS, _UNCHANGED = "initial-weights.npz", "unchanged"


class NotRepeated(Unavailable):
    """The command of a record does not take the steps of the record again."""

    def __init__(self, reason: str, is_random: bool) -> None:
        """Says why.

        Args:
            reason: As a clause.
            is_random: Whether it takes other steps each time.
        """
        super().__init__(reason)
        self.is_random = is_random


@dataclasses.dataclass(eq=False)
class Reruns:
    """The reruns of a record.

    Attributes:
        run: What was recorded.
        directory: The directory of the record.
        name: "A" or "B", for what is shown.
        rerun: Runs a command.
        is_quiet: Whether nothing is shown while a command runs.
        repeated: How many first steps of the record the command still takes, as far as is known.
    """

    run: RecordedRun
    directory: Path
    name: str
    rerun: RunCommand = run_again
    is_quiet: bool = False
    repeated: int = 0

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
            NotRepeated: The command takes other steps than those of the record.
            SamestepError: One failed.
        """
        is_cast, products = self.run.header.is_cast, self.run.header.products
        return [
            self._kept(
                f"perturbed-{seed}",
                num_steps,
                RecordOptions("", perturb=seed, products=products, stop_after=num_steps, float64=is_cast),
            )
            for seed in seeds
        ]

    def kept(self) -> list[RecordedRun]:
        """Returns the perturbed reruns that are there already: of each seed the last, which is the longest."""
        by_seed: dict[str, RecordedRun] = {}
        for path in self._places("perturbed-*") if (self.directory / FOLDER).is_dir() else ():
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
        options = RecordOptions("", stop_after=num_steps, weights_from=str(weights), float64=self.run.header.is_cast)
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
        found = self._find(name, num_steps)
        if found is None:
            self._require_repeated(num_steps)
            found = self._find(name, num_steps)
        return found or self._new(name, num_steps, options)

    def _find(self, name: str, num_steps: int) -> RecordedRun | None:
        places = (place for place in self._places(name) if rank_files(place))
        return next((found for place in places if (found := _read(place, num_steps))), None)

    def _places(self, name: str) -> list[Path]:
        """Returns the directories of the reruns of one kind, in the order in which they were made."""
        return sorted(self._folder().glob(f"{name}-*"), key=lambda place: (len(place.name), place.name))

    def _new(self, name: str, num_steps: int, options: RecordOptions) -> RecordedRun:
        if why := self.why_not():
            raise Unavailable(why)
        if not self.is_quiet:
            print(f"samestep: {self.name} is run again: {name}, {num_steps} steps ...", file=sys.stderr, flush=True)
        last = max((int(place.name.rpartition("-")[2]) for place in self._places(name)), default=-1)
        directory = self._folder() / f"{name}-{last + 1}"
        try:
            self._run(dataclasses.replace(options, out=str(directory)))
        except BaseException:  # Ctrl-C as well
            discard(directory)
            raise
        return read_run(directory)

    def _require_repeated(self, num_steps: int) -> None:
        """Runs the command again as it was, unless that was done.

        Raises:
            NotRepeated: It takes other steps.
            SamestepError: It failed.
        """
        if num_steps <= self.repeated:
            return
        known, there = self.repeated, {*self._folder().iterdir()}
        options = RecordOptions("", stop_after=num_steps, float64=self.run.header.is_cast)
        try:
            again = self._new(_UNCHANGED, num_steps, options)
            self.repeated = (
                num_steps  # as a yardstick of their own, the perturbed reruns need not be those of the record
            )
            if change := find_change(self.run, again, lambda: self.perturbed(SEEDS, num_steps)):
                twice = self._new(_UNCHANGED, num_steps, options)
                is_random = bool(find_change(again, twice, lambda: self.perturbed(SEEDS, num_steps)))
                why = "it draws other numbers" if is_random else "its script, its data or a library was changed"
                raise NotRepeated(
                    f"its command takes other steps {'each time' if is_random else 'now'}, as {why} ({change})",
                    is_random,
                )
        except BaseException:
            self.repeated = known
            for each in {*self._folder().iterdir()} - there:
                discard(each)
            raise
        discard(Path(again.name))

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
