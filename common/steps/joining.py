"""Reads the record of a script that had several processes, and joins what they held."""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, open_plain
from samestep.common.steps.joined_ranks import JoinedRanks
from samestep.common.steps.log import METRICS
from samestep.common.steps.made_anew import with_networks_joined
from samestep.common.steps.rank_reading import RankHead, read_head, read_steps
from samestep.common.steps.record import rank_files
from samestep.common.steps.recorded_run import ReadAnew, RecordedRun, RunStep

HowFar = Callable[[int, float], None]
"""Is told now and then which step of a record is read, and which share of it was."""
_WATCHED = 64
"""Every so many steps."""


def _steps(
    files: Sequence[Path], heads: Sequence[RankHead], join: JoinedRanks, watch: HowFar | None
) -> Iterator[RunStep]:
    """Reads the files of all ranks side by side, a step at a time. It ends where the shortest file does."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_opened(path)) for path in files]
        size = os.fstat(opened[0].fileno()).st_size
        readers = [read_steps(file, str(path), head) for file, path, head in zip(opened, files, heads, strict=True)]
        for count, steps in enumerate(zip(*readers, strict=False)):
            if len({step.number for step in steps}) > 1:
                numbers = ", ".join(str(step.number) for step in steps)
                raise ConfigError(f"{files[0].parent}: its ranks are at steps {numbers}; record the script again.")
            if watch is not None and not count % _WATCHED:
                watch(steps[0].number, opened[0].tell() / size)
            yield join.step(steps)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_plain(path) as file:
            yield file
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None


def read_run(directory: Path, watch: HowFar | None = None) -> RecordedRun:
    """Reads a record.

    Args:
        directory: The directory of the record.
        watch: Is told how far its steps were read.

    Raises:
        ConfigError: It is not a record, is damaged, or lacks a rank.
    """
    files = rank_files(directory)
    if not files and os.path.lexists(directory / METRICS):
        raise ConfigError(
            f"{directory} is a run of samestep, which keeps no gradients: `samestep report` shows it, and `samestep compare "
            "--against` holds others against it. `samestep record` records your own scripts."
        )
    if not files:
        raise ConfigError(f"{directory} is not a record: it holds no rank-0.steps; `samestep record` writes one.")
    heads = [_head_of(path) for path in files]
    headers = [head.header for head in heads]
    world, ranks = headers[0].world, {header.rank for header in headers}
    missing = next(rank for rank in range(len(ranks) + 1) if rank not in ranks)  # whatever number a header gives
    if missing < world:
        raise ConfigError(f"{directory} lacks rank {missing} of its {world} processes; record the script again.")
    if len(files) != world or len({(header.world, header.command) for header in headers}) > 1:
        raise ConfigError(f"{directory} holds ranks of several runs; record the script again, into a new directory.")
    join = JoinedRanks.of(headers, str(directory), *_begun(files, heads))
    header = dataclasses.replace(headers[0], tensors=join.whole)
    later = frozenset(itertools.chain(*heads[0].groups))
    own = {(each.name, each.piece) for each in headers[0].tensors}
    elsewhere = [each.name for each in join.whole if each.role == "parameter" and (each.name, each.piece) not in own]
    steps = ReadAnew(functools.partial(_steps, files, heads, join, watch))
    made = RecordedRun(str(directory), header, steps, later, elsewhere=tuple(elsewhere))
    return with_networks_joined(made, heads[0].groups)


def _begun(files: Sequence[Path], heads: Sequence[RankHead]) -> tuple[list[np.ndarray], set[int]]:
    """Returns the bits of each rank's first weights, and the ranks that have no examples at the first step where others do.

    They are the initial weights. If one rank alone has examples, as in a pipeline without replicas, they are those after the
    first step: stages that are seeded alike start from the same numbers, and each then gets a gradient of its own.
    """
    begun, idle = (list[np.ndarray](), list[np.ndarray]()), set[int]()
    for rank, (path, head) in enumerate(zip(files, heads, strict=True)) if len(files) > 1 else ():
        with _opened(path) as file:
            frames = [*itertools.islice(read_steps(file, str(path), head), 2)]
        if len(frames) < 2 or frames[0].stats is None:
            return [], set()
        for bits, frame in zip(begun, frames, strict=True):
            bits.append((frame.stats or frames[0].stats)["weight"]["bits"])
        idle |= set() if frames[1].rows else {rank}
    return begun[len(idle) == len(files) - 1], idle if len(idle) < len(files) else set()


def _head_of(path: Path) -> RankHead:
    with _opened(path) as file:
        return read_head(file, str(path))
