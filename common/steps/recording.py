"""The part of every recorder that runs inside the script: the options, and the file to which a process appends its steps.

A recorder never disturbs its script. An error in the recorder ends the record and is noted; `samestep record` prints the notes.
"""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

import numpy as np

from samestep.common.files.writing import create
from samestep.common.steps.environment import environment, reads_program, versions
from samestep.common.steps.failures import is_of_script, spell_failure, spell_removed, spell_taken
from samestep.common.steps.messages import leave_note
from samestep.common.steps.record import (
    SCHEMA,
    RecordedStep,
    RecordedTensor,
    RecordHeader,
    added_frame,
    header_frame,
    rank_file,
    step_frame,
)
from samestep.common.steps.workers import kill_workers
from samestep.common.steps.wrapping import preceded

VARIABLE = "SAMESTEP_RECORD"
"""The environment variable that holds the options, as JSON."""
DENSE_STEPS = 10
"""The number of first steps whose tensors are all recorded, no matter how few later steps' are."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """How a script is recorded.

    Attributes:
        out: The directory of the record.
        command: The words of the command.
        directory: The directory in which it was started, which a script may leave before its first step; "" means the working
            directory at that step.
        every: After the first steps, the tensors of every so many steps are recorded.
        float64: Whether to run the script in float64.
        perturb: The seed of a perturbation of the initial weights in their last bit; None leaves them.
        products: The dtype whose last bit is perturbed, if products are known to be computed in a dtype of fewer digits.
        stop_after: Exit with code 0 after so many steps; None to continue to the end.
        weights_to: A .npz file to which the initial weights are written.
        weights_from: A .npz file whose weights replace the initial ones.
        notes: A file that receives a line for each note; "" if the recorder was started within its process.
        package: The folder that holds the package samestep, for Python installations that do not have it.
        input: The standard input of the command, as `environment.input_file` identifies it.
        keep: The list of files that the command is about to overwrite or remove, and next to which they are copied; "" to copy
            none.
    """

    out: str
    command: tuple[str, ...] = ()
    directory: str = ""
    every: int = 1
    float64: bool = False
    perturb: int | None = None
    products: str = ""
    stop_after: int | None = None
    weights_to: str | None = None
    weights_from: str | None = None
    notes: str = ""
    package: str = ""
    input: str = ""
    keep: str = ""

    def to_json(self) -> str:
        """Returns the options as JSON, for the environment."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "RecordOptions":
        """Reads what `to_json` wrote, and ignores unknown fields."""
        values = json.loads(text)
        given = {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values}
        return cls(**given | {"command": tuple(values.get("command", ()))})


class Recorder:
    """Writes the record of this process. Both frameworks' recorders hold one."""

    def __init__(self, options: RecordOptions, framework: str) -> None:
        """Sets up the recorder, and writes nothing yet: a process that takes no step has no file.

        Args:
            options: How to record.
            framework: The framework, as in the header.
        """
        self.options, self.framework = options, framework
        self.number, self.is_looking = 0, True
        self._file: IO[bytes] | None = None
        self.is_ended = self.has_started = False  # started: the options' requests about initial weights are done
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """Stops recording in a process that was forked after the first step; one that was forked earlier may be a rank."""
        self.is_ended |= self.is_open

    @property
    def is_open(self) -> bool:
        """Whether the header is written."""
        return self._file is not None

    def looks_at(self, number: int) -> bool:
        """Returns whether the tensors of a step are recorded."""
        return number < DENSE_STEPS or number % self.options.every == 0

    def begin(
        self,
        tensors: Sequence[RecordedTensor],
        rank: int,
        world: int,
        is_float64: bool,
        layouts: tuple[str, ...] = (),
        products: str = "",
    ) -> None:
        """Creates the file and writes the header; to be called before the first step.

        Args:
            tensors: All tensors that are recorded.
            rank: The rank of this process.
            world: The number of processes.
            is_float64: Whether the tensors are float64.
            layouts: How the processes share the model.
            products: The dtype of few digits in which products are computed, as in the header.
        """
        if reason := spell_taken(path := Path(self.options.out) / rank_file(rank)):
            self.end(reason)
            return
        given, place = self.options, self.options.directory or os.getcwd()
        about = SCHEMA, self.framework, given.command, place, versions(), environment(), rank, world, tuple(tensors)
        how = is_float64, given.perturb, layouts, products, given.float64, reads_program(given.input)
        self._file = os.fdopen(create(path), "wb", buffering=0)
        self._append(header_frame(RecordHeader(*about, *how)))

    def add(self, tensors: Sequence[RecordedTensor], weights: np.ndarray) -> None:
        """Appends tensors that the script created after its first step; later steps have them as well.

        Args:
            tensors: The new tensors.
            weights: Their initial weights.
        """
        self._append(added_frame(tensors, weights))

    def write(self, step: RecordedStep, sums: tuple[bytes | None, bytes | None] | None = None) -> None:
        """Appends a step, and ends the process if it was the last requested one.

        Args:
            step: The step; numbers count from -1, the frame of the initial weights.
            sums: As for `step_frame`.
        """
        self._append(step_frame(step, sums))
        self.number, self.is_looking = step.number + 1, self.looks_at(step.number + 1)
        if self.options.stop_after is not None and self.number >= self.options.stop_after:
            self.leave()

    def leave(self, exit_code: int = 0) -> None:
        """Ends the process at once, without what the script would do at its end.

        Its workers end as they would with it. Daemons that have only just started, such as a DataLoader's, would not notice the
        end of this process, and are killed. Those that are ranks still write their last step, and end by themselves.
        """
        kill_workers(Path(self.options.out))
        for stream in (sys.stdout, sys.stderr):  # a script may have closed or replaced them
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.flush()
        self.end()
        os._exit(exit_code)

    def end(self, reason: str = "") -> None:
        """Stops recording, and notes the reason if there is one."""
        reason = reason or ("" if self.is_ended else spell_removed(Path(self.options.out), self._file))
        self.is_ended = True
        if reason:
            self.note(reason)

    def end_with_process(self, last: Callable[[], None]) -> Callable[[], None]:
        """Ends the record with the process: at its exit, before an immediate exit, and before another program replaces it.

        Args:
            last: Writes the last step, which no later pass has completed.

        Returns:
            A function that ends the record now.
        """
        last = self.guarded(last)

        def stop() -> None:
            last()
            self.end()

        atexit.register(stop)
        for name in ("_exit", "execv", "execve"):
            setattr(os, name, preceded(getattr(os, name), lambda *_, **__: stop()))
        return stop

    def note(self, text: str) -> None:
        """Leaves a sentence that the user gets to see when the script has ended."""
        leave_note(self.options.notes, "note", text)

    def guarded(self, function: Callable[P, T]) -> Callable[P, T | None]:
        """Makes a hook that does nothing once the record has ended, and whose errors end the record rather than the script."""

        @functools.wraps(function)
        def hook(*args: P.args, **kwargs: P.kwargs) -> T | None:
            if self.is_ended:
                return None
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if self.fail(error):
                    raise
            return None

        return hook

    def fail(self, error: BaseException) -> bool:
        """Ends the record, and the process if only its first steps were requested; returns whether the error is the script's."""
        self.end(f"the record ends at step {self.number}: {spell_failure(error)}")
        if self._file is not None and not self.number and isinstance(error, OSError):
            with contextlib.suppress(OSError, ValueError):
                self._file.truncate(0)  # the disk had no room for even one step
        if self.options.stop_after is not None and isinstance(error, Exception):
            self.leave(1)
        return is_of_script(error)

    def _append(self, frame: bytes) -> None:
        while self._file is not None and frame:  # a disk that is almost full takes only a part
            frame = frame[self._file.write(frame) :]
