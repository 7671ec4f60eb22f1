"""Reads the record of a script, and joins its processes."""

import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.access import check_open
from samestep.common.files.reading import Unreadable, open_plain
from samestep.common.steps.joined_ranks import JoinedRanks
from samestep.common.steps.log import METRICS
from samestep.common.steps.rank_reading import RankHead, read_head, read_steps
from samestep.common.steps.record import Phase, rank_files
from samestep.common.steps.recorded_run import ReadAnew, RecordedRun, RunStep
from samestep.common.steps.recreated_networks import with_networks_joined

HowFar = Callable[[int, float], None]
"""A function that is called at intervals with the number of the current step and the share of the record that has been read."""
_WATCHED = 64
"""The number of steps between two such calls."""


def _steps(
    files: Sequence[Path], heads: Sequence[RankHead], join: JoinedRanks, watch: HowFar | None
) -> Iterator[RunStep]:
    """Reads the files of all ranks side by side, a step at a time, and ends where the shortest file does."""
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
        watch: Called with how far the steps have been read.

    Raises:
        ConfigError: The directory is not a record, is damaged, or lacks a rank.
    """
    check_open(directory)
    files = rank_files(directory)
    if not files and os.path.lexists(directory / METRICS):
        raise ConfigError(
            f"{directory} is a run of samestep, which keeps no gradients: `samestep report` shows it, and `samestep "
            "compare --against` compares others with it. `samestep record` records your own scripts."
        )
    if not files:
        raise ConfigError(f"{directory} is not a record: it holds no rank-0.steps; `samestep record` writes one.")
    heads = [_head_of(path) for path in files]
    headers = [head.header for head in heads]
    world, ranks = headers[0].world, {header.rank for header in headers}
    missing = next(rank for rank in range(len(ranks) + 1) if rank not in ranks)  # headers may give any number
    if missing < world:
        raise ConfigError(f"{directory} lacks rank {missing} of its {world} processes; record the script again.")
    if len(files) != world or len({(header.world, header.command) for header in headers}) > 1:
        raise ConfigError(f"{directory} holds ranks of several runs; record the script again, into a new directory.")
    begun, idle, is_unsure = _begun(files, heads)
    join = JoinedRanks.of(headers, str(directory), begun, idle)
    header = dataclasses.replace(headers[0], tensors=join.whole)
    later = frozenset(itertools.chain(*heads[0].groups))
    own = {(each.name, each.piece) for each in headers[0].tensors}
    elsewhere = [each.name for each in join.whole if each.role == "parameter" and (each.name, each.piece) not in own]
    holders = [{rank for rank, _ in held} for parts in join.held for held in parts]
    shared = {rank for ranks in holders if ranks - idle for rank in ranks}
    more = {"elsewhere": tuple(elsewhere), "joined": tuple(sorted(shared & idle)) if is_unsure else ()}
    steps = ReadAnew(functools.partial(_steps, files, heads, join, watch))
    made = RecordedRun(str(directory), header, steps, later, **more)
    return with_networks_joined(made, heads[0].groups)


def _begun(files: Sequence[Path], heads: Sequence[RankHead]) -> tuple[list[np.ndarray], set[int], bool]:
    """Returns numbers of each rank's tensors that are equal on replicas and differ on the stages of a pipeline.

    These are the bits of the initial weights. If some ranks are given no examples, they are the bits after the first update:
    stages that are seeded alike start from the same numbers, and then each gets a gradient of its own. If ranks with examples
    drift apart from the same weights, the first update tells nothing.

    Returns:
        The numbers; the ranks that have no examples at the first step while others do; and whether only the initial weights are
        left to tell these from replicas.
    """
    begun, after, idle = list[np.ndarray](), list[np.ndarray](), set[int]()
    for rank, (path, head) in enumerate(zip(files, heads, strict=True)) if len(files) > 1 else ():
        with _opened(path) as file:
            frames = [*itertools.islice(read_steps(file, str(path), head), 2)]
        if len(frames) < 2 or frames[0].stats is None:
            return [], set(), False
        begun.append(frames[0].stats["weight"]["bits"])
        after.append(_updated(begun[-1], frames[1].stats or frames[0].stats))
        idle |= set() if frames[1].rows else {rank}
    if not 0 < len(idle) < len(files):
        return begun, set(), False
    own = [np.array([each.role == "parameter" for each in head.header.tensors], bool) for head in heads]
    given = {
        (begun[rank][own[rank]].tobytes(), after[rank][own[rank]].tobytes()) for rank in {*range(len(files))} - idle
    }
    is_told = len(given) == len({first for first, _ in given})
    return after if is_told else begun, idle, not is_told


def _updated(begun: np.ndarray, stats: Mapping[Phase, np.ndarray]) -> np.ndarray:
    """Returns the bits of weights after an update, or of the gradients if it moves nothing, e.g. at a learning rate of 0."""
    is_still = np.array_equal(stats["weight"]["bits"], begun)
    return stats["gradient" if is_still and "gradient" in stats else "weight"]["bits"]


def _head_of(path: Path) -> RankHead:
    with _opened(path) as file:
        return read_head(file, str(path))
