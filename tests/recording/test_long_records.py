"""A long record is read a step at a time: what a diff holds of it does not grow."""

import tracemalloc
from pathlib import Path

import numpy as np

from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.seen_examples import SeenExamples
from samestep.common.steps.joining import read_run
from samestep.common.steps.projections import Piece
from samestep.common.steps.record import (
    SCHEMA,
    RecordedStep,
    RecordedTensor,
    RecordHeader,
    header_frame,
    rank_file,
    stats_dtype,
    step_frame,
)

TENSORS, BATCH = 10, 128


def long_record(directory: Path, num_steps: int) -> Path:
    directory.mkdir()
    tensors = tuple(RecordedTensor(f"{number}.weight", "float32", Piece.whole((8, 8))) for number in range(TENSORS))
    header = RecordHeader(SCHEMA, "torch", (), "/", {}, {}, 0, 1, tensors)
    draw = np.random.default_rng(0)
    stats = np.ones(TENSORS, stats_dtype(False))
    with (directory / rank_file(0)).open("wb") as file:
        file.write(header_frame(header) + step_frame(RecordedStep(-1, stats={"weight": stats})))
        for number in range(num_steps):
            rows = tuple(draw.integers(0, 2**63, BATCH).tolist())
            both = {"gradient": stats, "weight": stats}
            file.write(step_frame(RecordedStep(number, (1.0,), rows, {"lr": 0.1}, stats=both)))
    return directory


def peak_bytes(below: Path, num_steps: int) -> int:
    a, b = (read_run(long_record(below / f"{name}{num_steps}", num_steps)) for name in "ab")
    tracemalloc.start()
    assert judge(a, b).kind == "same"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_the_memory_of_a_diff_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    few, many = (peak_bytes(tmp_path, num_steps) for num_steps in (20, 100))
    assert many - few < 80 * 500, (few, many)  # of each step its rate and two hashes, of either run


def test_examples_are_known_again() -> None:
    draw, seen = np.random.default_rng(0), SeenExamples()
    epoch = draw.integers(0, 2**63, (100, 64))
    assert [seen.add(batch.tolist()) for batch in epoch] == [False] * 100
    assert [seen.add(batch.tolist()) for batch in draw.permuted(epoch.ravel()).reshape(100, 64)] == [True] * 100
    mixed = [*epoch[0, :31].tolist(), *draw.integers(0, 2**63, 33).tolist()]
    assert not seen.add(mixed) and not seen.add([])
