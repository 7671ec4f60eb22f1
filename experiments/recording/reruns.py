"""Runs the command of a record again: perturbed, in float64, or from other weights. The reruns are kept in the record.

First, the command is run again unchanged: a script that was edited since takes other steps, and its reruns would hide the
difference.
"""

import contextlib
import dataclasses
import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samestep.common.errors import ConfigError, ParityFailed, Unavailable, WorkerFailed, count
from samestep.common.files.removing import discard, discard_all
from samestep.common.files.writing import make_folder
from samestep.common.judging.recorded.repeating import judge_again
from samestep.common.judging.recorded.verdict import place as where_first
from samestep.common.runtime.parent.attempts import first_new
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import rank_files
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.put_back import keeping
from samestep.experiments.recording.record_commands import RunCommand, run_again, start_of, tell_command, why_not_again
from samestep.experiments.recording.rerun_folder import FOLDER, named, numbered, outermost, read_whole

STEPS = 20
"""The default number of steps of the perturbed reruns."""
SEEDS = range(4)
"""The seeds of the perturbed reruns of every judgement."""
_WEIGHTS, _UNCHANGED = "initial-weights.npz", "unchanged"


class NotRepeated(Unavailable):
    """The command of a record does not take the steps of the record again."""

    def __init__(self, reason: str, is_random: bool) -> None:
        """Takes the reason.

        Args:
            reason: The reason, as a clause.
            is_random: Whether the command takes other steps each time.
        """
        super().__init__(reason)
        self.is_random = is_random


@dataclasses.dataclass(eq=False)
class Reruns:
    """The reruns of a record.

    Attributes:
        run: The recorded run.
        directory: The directory of the record.
        name: "A" or "B", for messages.
        rerun: Runs and records a command.
        is_quiet: Whether nothing is shown while a command runs.
        weights: A .npz file with the weights that the run started from; "" if those are the command's own.
        repeated: The number of first steps of the record that the command is known to take again.
        is_unsure: Whether rounding could hide that the command takes other steps.
        refusal: The error to raise once it is known that the command takes other steps.
        is_told: Whether the user knows the command: as an argument, or from a message.
        said: The messages about its reruns that were shown, up to their colons.
    """

    run: RecordedRun
    directory: Path
    name: str
    rerun: RunCommand = run_again
    is_quiet: bool = False
    weights: str = ""
    repeated: int = 0
    is_unsure: bool = False
    refusal: NotRepeated | None = None
    is_told: bool = False
    said: set[str] = dataclasses.field(default_factory=set)

    def perturbed(self, seeds: Sequence[int], num_steps: int, name: str = "perturbed") -> list[RecordedRun]:
        """Returns the first steps of the command, from initial weights that are changed in their last bit.

        Args:
            seeds: The seeds, one for each rerun.
            num_steps: The least number of steps of each.
            name: The name under which they are kept; a name other than the usual one makes them again.

        Raises:
            NotRepeated: The command takes other steps than those of the record.
            SamestepError: A rerun failed.
        """
        products = self.run.header.products
        return [
            self._kept(f"{name}-{seed}", self._options(num_steps, perturb=seed, products=products)) for seed in seeds
        ]

    def kept(self, name: str = "perturbed") -> dict[int, RecordedRun]:
        """Returns the existing perturbed reruns of a name, by seed. Of several, the last one counts, which is the longest."""
        places = numbered(self.directory / FOLDER, rf"{name}-(\d+)-(\d+)")
        return {seed: found for (seed, _), path in places if (found := read_whole(path, 1))}

    def in_float64(self, num_steps: int, weights: Path | None = None) -> RecordedRun:
        """Returns the first steps of the command in float64.

        Args:
            num_steps: The least number of steps.
            weights: The .npz file with the initial weights; without one, the command draws its own.
        """
        name, given = (named("float64", weights), str(weights)) if weights else ("float64", self.weights)
        if found := self._find(name, num_steps):
            return found
        self.require_repeated(num_steps)
        if self.is_unsure:
            raise Unavailable("its rounding hides whether its script still is what was recorded")
        return self._new(name, self._options(num_steps, float64=True, weights_from=given or None))

    def started_from(self, weights: Path, num_steps: int) -> RecordedRun:
        """Returns the first steps of the command, from given weights.

        Args:
            weights: The .npz file with the weights.
            num_steps: The least number of steps.
        """
        return self._kept(named("from", weights), self._options(num_steps, weights_from=str(weights)))

    def initial_weights(self) -> Path:
        """Returns a .npz file with the initial weights.

        Raises:
            SamestepError: The command did not write the file.
        """
        path = self._folder() / _WEIGHTS
        if not path.exists():
            self._run(RecordOptions(str(path.with_name("weights")), weights_to=str(path), stop_after=0))
        if not path.exists():
            raise WorkerFailed(
                f"{self.directory}: its command wrote no initial weights; set the same seed in both scripts."
            )
        return path

    def _options(self, num_steps: int, **changes: Any) -> RecordOptions:
        """Returns the options with which the record was made, for a number of steps and with changes."""
        header, weights = self.run.header, self.weights or None
        made = RecordOptions("", stop_after=num_steps, float64=header.is_cast, weights_from=weights)
        return dataclasses.replace(made, **changes)

    def _kept(self, name: str, options: RecordOptions) -> RecordedRun:
        """Returns an existing rerun that is long enough, or a new one."""
        assert options.stop_after is not None
        if found := self._find(name, options.stop_after):
            return found
        self.require_repeated(options.stop_after)
        return self._find(name, options.stop_after) or self._new(name, options)

    def _find(self, name: str, num_steps: int) -> RecordedRun | None:
        places = (place for _, place in self._numbered(name) if rank_files(place))
        return next((found for place in places if (found := read_whole(place, num_steps))), None)

    def _numbered(self, name: str) -> list[tuple[tuple[int, ...], Path]]:
        """Returns the directories of the reruns of one kind with their numbers, in the order of their creation."""
        return numbered(self._folder(), rf"{re.escape(name)}-(\d+)")

    def _new(self, name: str, options: RecordOptions) -> RecordedRun:
        if why := why_not_again(self.run.header):
            raise Unavailable(why)
        self._tell()
        self._say(f"is run again: {name}, {count(options.stop_after or 0, 'step')} ...")
        directory = first_new(lambda: self._next(name))  # another diff may run the same record again
        try:
            self._run(dataclasses.replace(options, out=str(directory)))
        except BaseException:  # Ctrl-C as well
            discard(directory)
            raise
        return read_run(directory)

    def _next(self, name: str) -> Path:
        numbers = [last for (last,), _ in self._numbered(name)]
        return self._folder() / f"{name}-{max(numbers, default=-1) + 1}"

    def require_repeated(self, num_steps: int) -> None:
        """Runs the command again unchanged, unless that was done before.

        Args:
            num_steps: The least number of steps.

        Raises:
            NotRepeated: The command takes other steps.
            SamestepError: The command failed.
        """
        if self.refusal is not None:
            raise self.refusal
        if num_steps <= self.repeated:
            return
        options = self._options(num_steps, perturb=self.run.header.perturbed)
        with contextlib.ExitStack() as stack:
            once = self._unchanged(options, stack)
            # They are first the yardstick of this rerun; only once it has passed do they become reruns of the record.
            perturb = functools.partial(once.perturbed, SEEDS, min(num_steps, STEPS))
            verdict = judge_again(self.run, once.run, perturb)
            if verdict is not None and verdict.exit_code != ParityFailed.exit_code:
                self.repeated, self.is_unsure = num_steps, verdict.kind == "unknown"
                for _, path in numbered(once.directory / FOLDER, r"perturbed-(\d+)-(\d+)"):
                    with contextlib.suppress(OSError):  # it exists, perhaps made by another diff
                        path.rename(self._folder() / path.name)
                return
            twice = judge_again(once.run, self._unchanged(options, stack).run, perturb)
        is_random = twice is None or twice.exit_code == ParityFailed.exit_code
        where = where_first(verdict.first) if verdict and verdict.first else "it has no tensor of the record"
        why = "it draws other numbers" if is_random else "its script, its data or a library was changed"
        reason = f"its command takes other steps {'each time' if is_random else 'now'}, as {why} ({where})"
        self.refusal = NotRepeated(reason, is_random)
        raise self.refusal

    def _unchanged(self, options: RecordOptions, stack: contextlib.ExitStack) -> "Reruns":
        run = self._new(_UNCHANGED, options)
        stack.callback(discard_all, Path(run.name))
        return dataclasses.replace(self, run=run, directory=Path(run.name), repeated=sys.maxsize)

    def _run(self, options: RecordOptions) -> None:
        self._tell()
        place = (start_of(self.run.header) or Path.cwd()).resolve()
        with keeping(outermost(self._folder()), place, self._say_once) as kept:
            self.rerun(self.run.header.command, dataclasses.replace(options, keep=str(kept)), place, True)

    def _say(self, what: str) -> None:
        if not self.is_quiet:
            print(f"samestep: {self.name} {what}", file=sys.stderr, flush=True)

    def _say_once(self, what: str) -> None:
        """Prints a message once for all reruns; the text after its colon may differ between them."""
        if (start := what.partition(":")[0]) not in self.said:
            self.said.add(start)
            self._say(what)

    def _tell(self) -> None:
        if not (self.is_told or self.is_quiet):
            tell_command(self.run.header.command, start_of(self.run.header) or Path.cwd(), self.directory)
        self.is_told = True

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
