"""Replicas whose gradients differ, as where what the update used was exchanged in a copy of them: their mean is the gradient."""

import dataclasses
import math
import os
from pathlib import Path

import numpy as np
import pytest

from samestep.common.files.writing import create
from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.joined_ranks import JoinedRanks
from samestep.common.steps.joining import read_run
from samestep.common.steps.projections import PROJECTIONS, Piece
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
from samestep.common.steps.recorded_run import Sums

TENSORS = (RecordedTensor("weight", "float32", Piece.whole((8, 8))),)


def rows(value: float, bits: int) -> np.ndarray:
    made = np.zeros(len(TENSORS), stats_dtype(False))
    made["projections"], made["square"], made["bits"] = value, np.square(value), bits
    return made


def mean(gradients: list[tuple[float, int]]) -> Sums:
    """Of ranks that take the same update."""
    ranks = range(len(gradients))
    headers = [RecordHeader(SCHEMA, "torch", (), "/", {}, {}, rank, len(ranks), TENSORS) for rank in ranks]
    seen = [{"gradient": rows(*each), "weight": rows(1.0, 1)} for each in gradients]
    step = JoinedRanks.of(headers, "it").step([RecordedStep(0, scalars={"lr": 0.1}, stats=stats) for stats in seen])
    assert step.sums is not None and step.splits == ()
    return step.sums["gradient"]


def test_a_rank_without_a_gradient_adds_nothing_to_the_mean() -> None:
    both = mean([(3.0, 1), (math.nan, 0)])
    assert both.projections.tolist() == [[1.5] * PROJECTIONS] and both.square.tolist() == [1.5**2]


@pytest.mark.parametrize(
    ("others", "expected"), [((math.nan,), math.nan), ((math.inf,), math.inf), ((math.inf, -math.inf), math.nan)]
)
def test_what_is_not_finite_on_a_rank_is_not_finite_in_the_mean(others: tuple[float, ...], expected: float) -> None:
    every = mean([(3.0, 1), *((value, 2 + place) for place, value in enumerate(others))])
    np.testing.assert_array_equal(every.projections, [[expected] * PROJECTIONS])
    np.testing.assert_array_equal(every.square, [expected])


def test_stages_of_a_pipeline_are_tensors_of_their_own() -> None:
    """Where each is a module of its own, their tensors have the same names, and here one has another shape."""
    bias = RecordedTensor("bias", "float32", Piece.whole((8,)))
    stages = [(*TENSORS, bias), (RecordedTensor("weight", "float32", Piece.whole((8, 4))), bias)]
    headers = [RecordHeader(SCHEMA, "torch", (), "/", {}, {}, rank, 4, stages[rank // 2]) for rank in range(4)]
    joined = JoinedRanks.of(headers, "it")
    assert [each.name for each in joined.whole] == ["weight", "bias", "rank2.weight", "rank2.bias"]
    assert [len(places) for parts in joined.held for places in parts] == [2] * 4


@pytest.mark.parametrize(("idle", "expected"), [({2, 3}, [2, 2]), (set(), [4])])
def test_stages_with_the_same_shapes_are_known_by_their_first_weights_and_by_having_no_examples(
    idle: set[int], expected: list[int]
) -> None:
    """Two ranks hold each stage. Where all are given examples, they are replicas that start differently, which is a mistake."""
    headers = [RecordHeader(SCHEMA, "torch", (), "/", {}, {}, rank, 4, TENSORS) for rank in range(4)]
    joined = JoinedRanks.of(headers, "it", [np.array([rank // 2], np.uint64) for rank in range(4)], idle)
    assert [each.name for each in joined.whole] == ["weight", "rank2.weight"][: len(expected)]
    assert [len(places) for parts in joined.held for places in parts] == expected


@pytest.mark.parametrize(
    ("first", "updated", "gradients", "networks", "joined"),
    [
        (0, (5, 5, 6, 6), (1, 1, 2, 2), 2, ()),
        (0, (0, 0, 0, 0), (1, 1, 2, 2), 2, ()),  # at a learning rate of 0
        (0, (5, 5, 5, 5), (1, 1, 1, 1), 1, ()),  # ranks that have run out of examples
        (0, (5, 7, 6, 6), (1, 3, 2, 2), 1, (2, 3)),  # replicas that drift, so stages need not be the reason
        (9, (5, 7, 6, 8), (1, 3, 2, 4), 2, ()),  # of stages that are not seeded alike
    ],
)
def test_stages_with_replicas_that_are_seeded_alike_are_told_by_their_first_update(
    tmp_path: Path,
    first: int,
    updated: tuple[int, ...],
    gradients: tuple[int, ...],
    networks: int,
    joined: tuple[int, ...],
) -> None:
    """Ranks 0 and 1 are given examples; the statistics of their batches are their own. The other ranks begin with other bits."""
    tensors = (*TENSORS, dataclasses.replace(TENSORS[0], name="running_mean", role="buffer"))
    for rank, (weight, gradient) in enumerate(zip(updated, gradients, strict=True)):
        header = RecordHeader(SCHEMA, "torch", ("python",), "/", {}, {}, rank, 4, tensors)
        begins = first * (rank > 1)
        begun, after = (np.concatenate([rows(1.0, bits), rows(1.0, bits + rank)]) for bits in (begins, weight))
        stats = {"gradient": np.concatenate([rows(1.0, gradient), rows(math.nan, 0)]), "weight": after}
        steps = [
            RecordedStep(-1, stats={"weight": begun}),
            RecordedStep(0, (1.0,), (rank + 1,) if rank < 2 else (), stats=stats),
        ]
        with os.fdopen(create(tmp_path / rank_file(rank)), "wb") as file:
            file.write(header_frame(header) + b"".join(map(step_frame, steps)))
    run = read_run(tmp_path)
    names = [each.name for each in run.tensors if each.role == "parameter"]
    assert (names, run.joined) == (["weight", "rank2.weight"][:networks], joined)
    notes = [note for note in judge(run, run).notes if "may be stages of a pipeline" in note]
    assert [note.partition(" are given")[0] for note in notes] == ["ranks 2, 3 of A", "ranks 2, 3 of B"] * bool(joined)
