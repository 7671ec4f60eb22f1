"""A long record is read a step at a time: what a diff holds of it does not grow."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.judge import judge, judge_unless_rounded
from samestep.common.judging.recorded.past import SeenExamples
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
from samestep.experiments.recording import sides
from tests.recording.judged import recorded
from tests.recording.numpy_script import Script

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


def knew(seen: SeenExamples, examples: list[int]) -> bool:
    seen.add(examples)
    return seen.knew_last()


def test_examples_are_known_again() -> None:
    draw, seen = np.random.default_rng(0), SeenExamples()
    epoch = draw.integers(0, 2**63, (100, 64))
    assert [knew(seen, batch.tolist()) for batch in epoch] == [False] * 100
    assert [knew(seen, batch.tolist()) for batch in draw.permuted(epoch.ravel()).reshape(100, 64)] == [True] * 100
    mixed = [*epoch[0, :31].tolist(), *draw.integers(0, 2**63, 33).tolist()]
    assert not knew(seen, mixed) and not knew(seen, [])


def test_examples_of_many_steps_are_entered_together() -> None:
    seen, epoch = SeenExamples(), np.random.default_rng(0).integers(0, 2**63, (100, 64)).tolist()
    for batch in epoch:
        seen.add(batch)
    assert not seen.knew_last() and knew(seen, epoch[0]) and knew(seen, epoch[99])


def test_a_record_is_read_no_further_than_rounding_leaves_it_open(tmp_path: Path) -> None:
    seen: list[int] = []
    a, same, other = (recorded(Script(steps=200, flipped=flipped), tmp_path) for flipped in (False, False, True))
    watched = read_run(Path(a.name), lambda number, share: seen.append(number))
    assert judge_unless_rounded(watched, same).kind == "same" and seen == [-1, 63, 127, 191]
    assert judge_unless_rounded(watched, other) is None and seen[4:] == [-1]


def test_what_is_read_for_long_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 100.0, 102.0, 104.0, 113.0, 114.0])
    monkeypatch.setattr(sides.time, "monotonic", lambda: next(clock))
    read = sides._ReadingProgress("A")
    for number, share in ((-1, 0.0), (63, 0.1), (127, 0.2), (191, 0.3), (1255, 0.5)):
        read(number, share)
    assert capsys.readouterr().err.splitlines() == [
        "samestep: A is read and compared: step 127, 20 %, about 16 s left ...",
        "samestep: A is read and compared: step 1,255, 50 %, about 14 s left ...",
    ]
