"""Where an attempt at a run begins: at the newest checkpoint in its directory, at a state that the user named, or at step 0."""

import dataclasses
import hashlib
import json
import os
import sys
from pathlib import Path

from samestep.common.batch import Batch
from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.files.reading import Unreadable
from samestep.common.program import Program, TrainState
from samestep.common.request import Launch
from samestep.common.runtime.checkpoints.committed import Checkpoint, Commit, newest
from samestep.common.runtime.checkpoints.saving import Saver, digest_losses
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.start import read_start
from samestep.common.steps.log import METRICS, read_log
from samestep.common.strategy import Run


@dataclasses.dataclass(frozen=True, eq=False)
class Beginning:
    """Where an attempt at a run begins.

    Attributes:
        begun: The step at which the run began, the same in every attempt.
        state: What to restore; None at step 0.
        checkpoint: The checkpoint that holds the state; None if this attempt begins where the run does.
        losses: The losses of the steps from `begun` to the checkpoint.
        attempt: The number of this attempt, from 1.
        damaged: Folders that look like newer checkpoints but are not.
    """

    begun: int = 0
    state: TrainState | None = None
    checkpoint: Checkpoint | None = None
    losses: tuple[float, ...] = ()
    attempt: int = 1
    damaged: tuple[Path, ...] = ()

    @property
    def step(self) -> int:
        """The number of the first step of this attempt."""
        return 0 if self.state is None else self.state.step


def describe_program(run: Run, launch: Launch) -> dict[str, object]:
    """Returns the description of a run, independent of how it is started and, if it is elastic, of the number of devices.

    Args:
        run: The run.
        launch: Says whether it is elastic.
    """
    return run.described() | ({} if launch.elastic is None else {"mesh": launch.elastic})


def digest_program(run: Run, launch: Launch) -> str:
    """Computes the SHA-256 digest of the description of a run.

    Args:
        run: The run.
        launch: Says whether it is elastic.
    """
    return hashlib.sha256(json.dumps(describe_program(run, launch), sort_keys=True, default=str).encode()).hexdigest()


def find_beginning(directory: Path, run: Run, launch: Launch) -> Beginning:
    """Finds where an attempt at a run begins.

    Args:
        directory: The run directory.
        run: What is trained.
        launch: How it was started.

    Raises:
        ConfigError: The directory holds another run, or a checkpoint that is damaged or cannot be continued.
    """
    found, damaged = newest(directory, digest_program(run, launch))
    for each in damaged:
        print(f"samestep: {each.path} is left out: {each.reason}", file=sys.stderr, flush=True)
    left_out = tuple(each.path for each in damaged)
    log = read_log(directory) if os.path.lexists(directory / METRICS) else None
    attempt = 1 + log.attempt if log else 1
    if found is None:
        state = None if launch.start_from is None else read_start(run, launch.start_from)
        return Beginning(0 if state is None else state.step, state, attempt=attempt, damaged=left_out)
    begun, step = found.commit.begun, found.commit.step
    if log is None:
        raise ConfigError(
            f"{directory / METRICS}, which had the losses up to {found.path}, is gone; start another run."
        )
    losses = tuple(each.loss for each in log.steps() if begun <= each.number < step)
    if digest_losses(losses).hexdigest() != found.commit.losses:
        raise ConfigError(
            f"{directory / METRICS} does not have the losses that lead to {found.path}; start another run."
        )
    print(f"samestep: continues from {found.path}", file=sys.stderr, flush=True)
    try:
        return Beginning(begun, found.state(), found, losses, attempt, left_out)
    except Unreadable as error:
        raise ConfigError(f"{found.path} is damaged: {error}; move it away.") from None


def saver_of(run: Run, launch: Launch, beginning: Beginning, file: ProcessFile) -> Saver | None:
    """Returns the saver of an attempt's checkpoints; None if it saves none.

    Args:
        run: What is trained.
        launch: Says how often to save, and how many to keep.
        beginning: Where the attempt begins.
        file: The file of this process, in whose directory they are saved.
    """
    if launch.save_every is None:
        return None
    commit = Commit(run.steps, beginning.begun, beginning.attempt, digest_program(run, launch), "")
    return Saver(file, commit, run, launch, beginning.losses, beginning.damaged)


def restore(program: Program, beginning: Beginning, run: Run, batch: Batch) -> None:
    """Restores a program to the state with which an attempt begins; collective.

    Args:
        program: The program, which was just built.
        beginning: Where the attempt begins.
        run: What is trained.
        batch: Any batch.

    Raises:
        WorkerFailed: The processes found different checkpoints.
    """
    _check_agreement(program, beginning)
    state = beginning.state
    if state is None:
        return
    if run.strategy.synchronous(run.options):
        # This step is discarded. DDP sorts its buckets by the first backward pass, which fixes the order of its sums.
        program.step(batch)
        program.losses()
    if len(state.local) != run.num_devices:  # the launcher has said that it is reset
        state = dataclasses.replace(state, local=())
    program.restore(state)


def _check_agreement(program: Program, beginning: Beginning) -> None:
    """Makes sure that all processes have the same checkpoint, since a shared folder may show it late to one of them."""
    place, name = beginning.step, "" if beginning.checkpoint is None else str(beginning.checkpoint.commit)
    number = float(int(hashlib.sha256(f"{place} {name}".encode()).hexdigest()[:8], 16))
    if program.agree(number) != number:
        raise WorkerFailed(
            f"the processes found different checkpoints; this one begins at step {place}: start the run again"
        )
