"""The record of several ranks is read as that of one run."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.steps.joined_ranks import JoinedRanks
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import FOLLOWER, RecordedStep
from tests.recording.numpy_script import Script, run

SCRIPT = Script(steps=2, optimizer="sgd")


def test_shards_add_up(tmp_path: Path) -> None:
    whole, shards = (
        read_run(run(SCRIPT, tmp_path / name, world=world, shards=world > 1)) for name, world in (("a", 1), ("b", 4))
    )
    assert [tensor.piece for tensor in whole.tensors] == [tensor.piece for tensor in shards.tensors]
    for one, other in zip(whole.steps, shards.steps, strict=True):
        for phase in one.sums:
            a, b = one.sums[phase], other.sums[phase]
            known = ~np.isnan(a.square)
            assert (np.isnan(b.square) == ~known).all()
            np.testing.assert_allclose(a.projections[known], b.projections[known], atol=1e-5)
            np.testing.assert_allclose(a.square[known], b.square[known], rtol=1e-3, atol=1e-12)
        if one.number < 0:
            assert (one.sums["weight"].bits == other.sums["weight"].bits).all()
        else:
            assert one.examples == other.examples
            assert one.loss == pytest.approx(other.loss, rel=1e-6)


def test_the_loss_is_the_mean_over_ranks_of_the_sum_over_passes(tmp_path: Path) -> None:
    one, cut = (
        [step.loss for step in read_run(run(SCRIPT, tmp_path / str(world), world=world, passes=passes)).steps]
        for world, passes in ((1, 1), (2, 1))
    )
    assert one[0] is None
    assert one[1:] == pytest.approx(cut[1:], rel=1e-6)


def test_replicas_that_differ_are_reported(tmp_path: Path) -> None:
    steps = list(read_run(run(SCRIPT, tmp_path, world=4, mistake="replicas_drift")).steps)
    assert steps[0].splits == ()
    names = {split.name for split in steps[1].splits}
    assert {split.phase for split in steps[1].splits} == {"weight"}
    assert "net.head.weight" in names and "net.unused.weight" not in names
    assert steps[1].splits[0].ranks == (0,)  # the others agree


def test_a_tensor_without_a_gradient_has_none(tmp_path: Path) -> None:
    run_ = read_run(run(SCRIPT, tmp_path))
    place = [tensor.name for tensor in run_.tensors].index("net.unused.weight")
    assert [math.isnan(step.sums["gradient"].square[place]) for step in run_.steps if step.number >= 0] == [True, True]


def test_a_killed_rank_ends_the_run(tmp_path: Path) -> None:
    run(SCRIPT, tmp_path, world=2, steps=5)
    path = tmp_path / "rank-1.steps"
    path.write_bytes(path.read_bytes()[:-100])
    assert [step.number for step in read_run(tmp_path).steps] == [-1, 0, 1, 2, 3]


def _empty(directory: Path) -> None:
    (directory / "rank-1.steps").unlink()
    (directory / "rank-0.steps").unlink()


def _lose_a_rank(directory: Path) -> None:
    (directory / "rank-1.steps").unlink()


def _scribble(directory: Path) -> None:
    path = directory / "rank-1.steps"
    content = bytearray(path.read_bytes())
    content[-50] ^= 1
    path.write_bytes(content)


def _foreign(directory: Path) -> None:
    (directory / "rank-0.steps").write_bytes(b"GIF89a" * 100)


def _mix(directory: Path) -> None:
    run(SCRIPT, directory / "other")
    (directory / "other" / "rank-0.steps").rename(directory / "rank-2.steps")


def _truncate(directory: Path) -> None:
    (directory / "rank-0.steps").write_bytes(b"")


def _lengthen(directory: Path) -> None:
    content = bytearray((directory / "rank-0.steps").read_bytes())
    content[6] ^= 1  # of the length of the header
    (directory / "rank-0.steps").write_bytes(content)


def _pipe(directory: Path) -> None:
    import os

    (directory / "rank-0.steps").unlink()
    os.mkfifo(directory / "rank-0.steps")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_empty, "is not a record: it holds no rank-0.steps"),
        (_lose_a_rank, "lacks rank 1 of its 2 processes"),
        (_scribble, "damaged"),
        (_foreign, "is not a record that samestep wrote"),
        (_mix, "holds ranks of several runs"),
        (_truncate, "holds no step of a record"),
        (_lengthen, "damaged"),
        (_pipe, "cannot be read: it is not a plain file"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(tmp_path: Path, spoil: object, message: str) -> None:
    run(SCRIPT, tmp_path, world=2, shards=True)
    spoil(tmp_path)
    with pytest.raises(ConfigError, match=message) as raised:
        list(read_run(tmp_path).steps)
    assert "\n" not in str(raised.value)


def test_the_weights_of_classes_are_those_of_every_rank_with_a_loss(tmp_path: Path) -> None:
    """The first stage of a pipeline has no loss, and the ranks of the last may be given other weights."""
    joined = JoinedRanks.of([read_run(run(SCRIPT, tmp_path)).header] * 3, "record")
    counts = {}, {"target_kinds": 1, "class_weights": 7}, {"target_kinds": 1}
    step = joined.step([RecordedStep(0, counts=each) for each in counts])
    assert step.class_weights == {7, 0}


def test_ranks_that_keep_other_networks_of_one_number_are_joined_without_these(tmp_path: Path) -> None:
    header = read_run(run(SCRIPT, tmp_path)).header
    made = [dataclasses.replace(each, name="follower.weight", role=FOLLOWER) for each in header.tensors[:2]]
    assert made[0].piece != made[1].piece
    headers = [dataclasses.replace(header, tensors=(*header.tensors, each)) for each in made]
    joined = JoinedRanks.of(headers, "record")
    assert [not each for each in joined.held] == [each.role == FOLLOWER for each in joined.whole]
